// What CUDA C++ has and C++ has not, for kernels that the host runs: compiler.c puts it before their source.
//
// A kernel's threads run one after the other, or as fibers in turns if the source has anything that waits for others.
// Memory that a launch brings ("extern __shared__"), textures and cooperative groups are not there.
#include <initializer_list>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#include <ucontext.h>

#define __CUDACC_VER_MAJOR__ 13
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __launch_bounds__(...)
#define __shared__ static
#define __shared__dynamic
#define __align__(n) __attribute__((aligned(n)))

namespace host_cuda {
struct Index {
    unsigned x = 0, y = 0, z = 0;
};
} // namespace host_cuda
// One launch runs at a time, under the runtime's lock.
static host_cuda::Index threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

namespace host_cuda {
enum Waits { NO, WARP, BLOCK, DONE };
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    Index thread;
    Waits waits = NO;
    unsigned long long slot = 0;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static size_t current;
static void (*body)(void *);
static void *body_data;
static void start() {
    body(body_data);
    fibers[current].waits = DONE;
}
static void wait_for(Waits what) {
    if (fibers.empty()) return;
    fibers[current].waits = what;
    swapcontext(&fibers[current].context, &scheduler);
    threadIdx = fibers[current].thread;
}
// Runs a block of `count` threads in turns: each until it waits. A warp goes on when all its threads wait for it, a
// block when all of its own do and no warp can.
static void run_block(size_t count) {
    fibers.clear();
    fibers.resize(count);
    size_t i = 0;
    for (unsigned z = 0; z < blockDim.z; z++)
        for (unsigned y = 0; y < blockDim.y; y++)
            for (unsigned x = 0; x < blockDim.x; x++, i++) {
                Fiber &f = fibers[i];
                f.thread = {x, y, z};
                f.stack.resize(32768);
                getcontext(&f.context);
                f.context.uc_stack.ss_sp = f.stack.data();
                f.context.uc_stack.ss_size = f.stack.size();
                f.context.uc_link = &scheduler;
                makecontext(&f.context, start, 0);
            }
    for (bool alive = true; alive;) {
        for (current = 0; current < count; current++)
            if (fibers[current].waits == NO) {
                threadIdx = fibers[current].thread;
                swapcontext(&scheduler, &fibers[current].context);
            }
        alive = false; // and what waits for what
        bool released = false, whole = true;
        for (size_t w = 0; w < count; w += 32) {
            bool all = true, any = false;
            for (size_t t = w; t < std::min(count, w + 32); t++) {
                Waits s = fibers[t].waits;
                if (s != DONE) alive = any = true;
                if (s != WARP && s != DONE) all = false;
                if (s != BLOCK && s != DONE) whole = false;
            }
            if (any && all)
                for (size_t t = w; t < std::min(count, w + 32); t++)
                    if (fibers[t].waits == WARP) fibers[t].waits = NO, released = true;
        }
        if (alive && !released) {
            if (!whole) abort(); // a deadlock
            for (Fiber &f : fibers)
                if (f.waits == BLOCK) f.waits = NO;
        }
    }
    fibers.clear();
}
// What another thread of the warp passes: all store theirs, and then all read.
template <class T> T exchanged(T value, size_t lane) {
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    fibers[current].slot = bits;
    wait_for(WARP);
    size_t from = current / 32 * 32 + lane % 32;
    bits = fibers[from < fibers.size() ? from : current].slot;
    wait_for(WARP);
    memcpy(&value, &bits, sizeof value);
    return value;
}

// A kernel and its arguments, each at a multiple of 16 bytes, as driver.c puts them.
template <class... A> struct Kernel {
    void (*function)(A...);
    char *arguments;
    template <size_t... I> void call(std::index_sequence<I...>) {
        size_t at[sizeof...(A) + 1] = {0};
        constexpr size_t sizes[] = {sizeof(A)..., 0};
        for (size_t i = 0; i < sizeof...(A); i++)
            at[i + 1] = at[i] + ((sizes[i] + 15) & ~size_t(15));
        function(*reinterpret_cast<A *>(arguments + at[I])...);
    }
    static void once(void *self) { static_cast<Kernel *>(self)->call(std::index_sequence_for<A...>()); }
};

template <class... A> void launch(void (*function)(A...), const unsigned *grid, char *arguments, bool waits) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {grid[3], grid[4], grid[5]};
    Kernel<A...> kernel{function, arguments};
    body = kernel.once, body_data = &kernel;
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
                if (waits) {
                    run_block(size_t(blockDim.x) * blockDim.y * blockDim.z);
                    continue;
                }
                for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
                    for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
                        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                            kernel.once(&kernel);
            }
}

template <class To, class From> To bits_of(From value) {
    static_assert(sizeof(To) == sizeof(From), "of the same size");
    To bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// The sizes of a kernel's parameters, with 0 behind the last.
template <class... A> struct Sizes {
    size_t values[sizeof...(A) + 1] = {sizeof(A)..., 0};
};
template <class... A> constexpr Sizes<A...> sizes_of(void (*)(A...)) { return {}; }

} // namespace host_cuda

// What driver.c looks for in the library: how to run the kernel, and the sizes of its parameters.
#define HOST_CUDA_KERNEL(name, waits)                                                                                  \
    extern "C" void host_cuda_run_##name(const unsigned *grid, size_t shared, char *arguments) {                       \
        host_cuda::launch(&name, grid, arguments, waits);                                                              \
    }                                                                                                                  \
    extern "C" {                                                                                                       \
    decltype(host_cuda::sizes_of(&name)) host_cuda_sizes_##name;                                                       \
    }

inline void __syncthreads() { host_cuda::wait_for(host_cuda::BLOCK); }
inline void __syncwarp(unsigned = ~0u) { host_cuda::wait_for(host_cuda::WARP); }
template <class T> T __shfl_xor_sync(unsigned, T v, int mask, int = 32) {
    return host_cuda::exchanged(v, (host_cuda::current % 32) ^ mask);
}
template <class T> T __shfl_down_sync(unsigned, T v, unsigned by, int = 32) {
    size_t l = host_cuda::current % 32;
    return host_cuda::exchanged(v, l + by < 32 ? l + by : l);
}
template <class T> T __shfl_sync(unsigned, T v, int lane, int = 32) { return host_cuda::exchanged(v, lane); }
template <class T> T __ldg(const T *p) { return *p; }
inline float __int_as_float(int v) { return host_cuda::bits_of<float>(v); }
inline int __float_as_int(float v) { return host_cuda::bits_of<int>(v); }
inline float __uint_as_float(unsigned v) { return host_cuda::bits_of<float>(v); }
inline unsigned __float_as_uint(float v) { return host_cuda::bits_of<unsigned>(v); }
inline long long __double_as_longlong(double v) { return host_cuda::bits_of<long long>(v); }
inline double __longlong_as_double(long long v) { return host_cuda::bits_of<double>(v); }

// Threads take turns at waits alone, so nothing has to be atomic.
template <class T> T atomicAdd(T *at, T by) {
    T old = *at;
    *at += by;
    return old;
}
template <class T> T atomicCAS(T *at, T c, T v) {
    T old = *at;
    if (old == c) *at = v;
    return old;
}
using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;
using std::signbit;
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
template <class T> T atomicExch(T *at, T v) {
    T old = *at;
    *at = v;
    return old;
}
template <class T> T atomicMax(T *at, T v) {
    T old = *at;
    if (v > old) *at = v;
    return old;
}
template <class T> T atomicMin(T *at, T v) {
    T old = *at;
    if (v < old) *at = v;
    return old;
}
