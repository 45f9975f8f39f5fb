#pragma once
struct __half_raw {
    unsigned short x;
};
struct __half {
    _Float16 v;
    __half() {}
    __half(float f) : v(f) {}
    explicit __half(const __half_raw &r) { memcpy(&v, &r, 2); }
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>> explicit __half(T f) : v(f) {}
    operator float() const { return v; }
    operator __half_raw() const {
        __half_raw r;
        memcpy(&r, &v, 2);
        return r;
    }
};
typedef __half half;
inline unsigned short __half_as_ushort(half h) { return __half_raw(h).x; }
inline half __ushort_as_half(unsigned short x) { return half(__half_raw{x}); }
inline half __float2half_rn(float f) { return half(f); }
inline half __float2half(float f) { return half(f); }
inline float __half2float(half h) { return h; }
