#pragma once
struct __nv_bfloat16 {
    unsigned short x = 0;
    __nv_bfloat16() {}
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>> __nv_bfloat16(T value) {
        float f = value;
        unsigned bits;
        memcpy(&bits, &f, 4);
        x = f != f ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
    operator float() const {
        unsigned bits = x << 16;
        float f;
        memcpy(&f, &bits, 4);
        return f;
    }
};
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    __nv_bfloat16 v;
    v.x = x;
    return v;
}
inline bool __hisnan(__nv_bfloat16 v) { return (v.x & 0x7fff) > 0x7f80; }
inline int __hisinf(__nv_bfloat16 v) { return (v.x & 0x7fff) == 0x7f80; }
