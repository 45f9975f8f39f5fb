/* The CUDA driver (libcuda.so.1), as much of it as CuPy uses: modules of kernels, and their launches.
 *
 * The image of a module names a shared library that compiler.c has made. Everything else succeeds, or is the runtime's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE "HOST_CUDA:" /* what an image begins with; a path follows */
enum { OK = 0, INVALID_IMAGE = 200, NOT_FOUND = 500, NOT_SUPPORTED = 801 }; /* CUresult */

typedef void Run(const unsigned *grid_and_block, size_t shared, char *arguments);
int host_cuda_launch(Run *run, const char *name, const unsigned *grid_and_block, size_t shared, const char *arguments,
                     size_t size, void *stream);
void host_cuda_check_argument(const void *argument);
int cudaGetDevice(int *device), cudaSetDevice(int device), cudaGetDeviceCount(int *count);
int cudaDeviceGetAttribute(int *value, int attribute, int device);
const char *cudaGetErrorName(int status);

int cuTensorMapEncodeTiled(void) { return NOT_SUPPORTED; }
int cuInit(unsigned flags) { return OK; }
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return OK;
}
int cuGetErrorName(int status, const char **name) {
    *name = cudaGetErrorName(status);
    return OK;
}
int cuGetErrorString(int status, const char **name) {
    *name = cudaGetErrorName(status);
    return OK;
}
int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return OK;
}
int cuDeviceGetCount(int *count) { return cudaGetDeviceCount(count); }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    return cudaDeviceGetAttribute(value, attribute, device);
}
static int contexts[16]; /* one per device */
int cuCtxGetCurrent(void **out) {
    int device;
    cudaGetDevice(&device);
    *out = &contexts[device];
    return OK;
}
int cuCtxSetCurrent(void *context) { return context ? cudaSetDevice((int *)context - contexts) : 0; }
int cuCtxGetDevice(int *device) { return cudaGetDevice(device); }
int cuDevicePrimaryCtxRetain(void **out, int device) {
    *out = &contexts[device];
    return OK;
}
int cuDevicePrimaryCtxRelease(int device) { return OK; }

typedef struct {
    Run *run;
    const size_t *sizes;
    char name[200];
} Function;
int cuModuleLoadData(void **out, const char *image) {
    if (strncmp(image, IMAGE, strlen(IMAGE))) return INVALID_IMAGE;
    *out = dlopen(image + strlen(IMAGE), RTLD_NOW | RTLD_LOCAL);
    if (*out) return OK;
    fprintf(stderr, "%s\n", dlerror());
    return INVALID_IMAGE;
}
int cuModuleLoad(void **out, const char *path) { return INVALID_IMAGE; }
int cuModuleUnload(void *module) { return OK; }
int cuModuleGetFunction(Function **out, void *module, const char *name) {
    char text[300];
    Function *f = calloc(1, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(text, sizeof text, "host_cuda_run_%s", name);
    f->run = (Run *)dlsym(module, text);
    snprintf(text, sizeof text, "host_cuda_sizes_%s", name);
    f->sizes = dlsym(module, text);
    if (!f->run || !f->sizes) return NOT_FOUND;
    *out = f;
    return OK;
}
int cuModuleGetGlobal_v2(void **at, size_t *size, void *module, const char *name) { return NOT_FOUND; }
int cuFuncGetAttribute(int *value, int attribute, Function *f) {
    *value = attribute == 0 ? 1024 : 0;
    return OK;
}
int cuFuncSetAttribute(Function *f, int attribute, int value) { return OK; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *f, int size, size_t shared) {
    *blocks = 2;
    return OK;
}
int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, Function *f, void *of, size_t shared, int limit) {
    *grid = 132, *block = 256;
    return OK;
}
int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    char arguments[8192] = {0};
    size_t at = 0, n = 0;
    for (; f->sizes[n]; n++) {
        if (f->sizes[n] >= 8) host_cuda_check_argument(parameters[n]);
        memcpy(arguments + at, parameters[n], f->sizes[n]);
        at += (f->sizes[n] + 15) & ~(size_t)15;
    }
    unsigned grid[] = {gx, gy, gz, bx, by, bz};
    return host_cuda_launch(f->run, f->name, grid, shared, arguments, at, stream);
}
int cuLaunchCooperativeKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, void *stream, void **parameters) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0);
}
