/* The run-time compiler of CUDA C++ (libnvrtc.so.13), for CuPy: the system's C++ compiler, with kernel.h before the
 * source.
 *
 * What it makes of a program is a shared library in the folder HOST_CUDA_CACHE, where it stays, and the "cubin" is its
 * path. HOST_CUDA_INCLUDE is the compiler's option that names the headers' folders. There are no templated kernels and
 * no name expressions. */
#define _GNU_SOURCE
#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE "HOST_CUDA:"    /* what an image begins with, see driver.c */
enum { OK = 0, FAILED = 6 };  /* nvrtcResult */
enum { LONGEST_LOG = 20000 }; /* bytes */
#define OPTIONS "-std=c++17 -O1 -w -shared -fPIC -fpermissive -Wl,-Bsymbolic"

typedef struct {
    char *source, *log, *image;
} Program;

const char *nvrtcGetErrorString(int status) { return status ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }
int nvrtcVersion(int *major, int *minor) {
    *major = 13, *minor = 0;
    return OK;
}
int nvrtcGetNumSupportedArchs(int *n) {
    *n = 1;
    return OK;
}
int nvrtcGetSupportedArchs(int *archs) {
    archs[0] = 90;
    return OK;
}
int nvrtcCreateProgram(Program **out, const char *source, const char *name, int n, const char *const *headers,
                       const char *const *include_names) {
    *out = calloc(1, sizeof **out);
    (*out)->source = strdup(source);
    (*out)->log = strdup("");
    (*out)->image = strdup("");
    return OK;
}
int nvrtcDestroyProgram(Program **program) { return OK; }

static char *formatted(const char *format, ...) {
    char *text;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) abort();
    va_end(arguments);
    return text;
}
static uint64_t hash_of(uint64_t hash, const char *text) { /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}
/* The options that name folders and macros, for a shell. */
static char *shell_options(int n, const char *const *options) {
    char *text = strdup("");
    for (int i = 0; i < n; i++)
        if (!strncmp(options[i], "-I", 2) || !strncmp(options[i], "-D", 2))
            text = formatted("%s '%s'", text, options[i]);
    return text;
}
static int is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The names of kernels, for what kernel.h makes of them: of `__global__ void __launch_bounds__(256) name(` the last. */
static void write_kernels(FILE *to, const char *source) {
    int waits = strstr(source, "__sync") || strstr(source, "__shfl"); /* for other threads */
    for (const char *at = source; (at = strstr(at, "__global__")); at += strlen("__global__")) {
        for (const char *open = strchr(at, '('); open; open = strchr(open + 1, '(')) {
            const char *end = open, *start;
            while (isspace((unsigned char)end[-1]))
                end--;
            for (start = end; is_name(start[-1]);)
                start--;
            if (!strncmp(start, "__launch_bounds__", 17)) continue;
            fprintf(to, "HOST_CUDA_KERNEL(%.*s, %d)\n", (int)(end - start), start, waits);
            break;
        }
    }
}
/* "extern __shared__" is memory that the launch brings; other __shared__ is the block's. */
static void write_source(FILE *to, const char *source) {
    const char *shared = "extern __shared__";
    for (const char *found; (found = strstr(source, shared)); source = found + strlen(shared))
        fprintf(to, "%.*sextern __shared__dynamic", (int)(found - source), source);
    fprintf(to, "%s\n", source);
}
static char *contents(const char *path) {
    char *text = calloc(1, LONGEST_LOG + 1);
    FILE *from = fopen(path, "r");
    if (!from) return text;
    text[fread(text, 1, LONGEST_LOG, from)] = 0;
    fclose(from);
    return text;
}

int nvrtcCompileProgram(Program *program, int n, const char *const *given) {
    const char *folder = getenv("HOST_CUDA_CACHE"), *include = getenv("HOST_CUDA_INCLUDE");
    if (!folder || !include) return FAILED;
    char *options = shell_options(n, given);
    uint64_t hash = hash_of(hash_of(14695981039346656037u, program->source), options);
    char *library = formatted("%s/%016lx.so", folder, hash);
    program->image = formatted(IMAGE "%s", library);
    if (!access(library, R_OK)) return OK;
    mkdir(folder, 0777);
    /* Threads and processes may compile the same at a time. */
    char *part = formatted("%s/%016lx.%d.%lx", folder, hash, getpid(), (unsigned long)pthread_self());
    FILE *to = fopen(formatted("%s.cpp", part), "w");
    if (!to) return FAILED;
    fprintf(to, "#include \"kernel.h\"\n");
    write_source(to, program->source);
    write_kernels(to, program->source);
    fclose(to);
    int status =
        system(formatted("${CXX:-c++} " OPTIONS " %s %s -o '%s.made' '%s.cpp' >'%s.log' 2>&1 && mv '%s.made' '%s'",
                         include, options, part, part, part, part, library));
    program->log = contents(formatted("%s.log", part));
    return status ? FAILED : OK;
}

/* CUBIN and PTX are both the image. */
int nvrtcGetCUBINSize(Program *program, size_t *size) {
    *size = strlen(program->image) + 1;
    return OK;
}
int nvrtcGetCUBIN(Program *program, char *to) {
    strcpy(to, program->image);
    return OK;
}
int nvrtcGetPTXSize(Program *program, size_t *size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(Program *program, char *to) { return nvrtcGetCUBIN(program, to); }
int nvrtcGetProgramLogSize(Program *program, size_t *size) {
    *size = strlen(program->log) + 1;
    return OK;
}
int nvrtcGetProgramLog(Program *program, char *to) {
    strcpy(to, program->log);
    return OK;
}
int nvrtcAddNameExpression(Program *program, const char *name) { return OK; }
int nvrtcGetLoweredName(Program *program, const char *name, const char **out) {
    *out = name;
    return OK;
}
