/* A CUDA runtime (libcudart.so.13) over host memory, for ONNX Runtime's CUDA execution provider and for CuPy.
 *
 * It does what CUDA allows and no program should rely on:
 * - Device memory is address space that faults when the host touches it. Its bytes lie elsewhere, at a constant
 *   distance: in its "shadow". New and freed memory is filled with bytes that no test expects.
 * - A stream is a queue. What is put on it runs only when something waits for it or asks whether it is done, so that a
 *   missing wait gives wrong numbers every time.
 * - Copies between other places than named, uses of memory that is free or of another device, and kernels that are
 * given the host's memory are complaints, which tests read.
 * - While it is traced, each call that matters is a line: its name, and key=value.
 *
 * Limits: kernels of CUDA binaries (ONNX Runtime's own operators, cuBLAS, CUB) cannot run, launching one is an error;
 * kernels that CuPy compiles can (compiler.c), and what looks like a device address in their arguments is taken for
 * one. A graph captures one stream. There is one default stream for all devices. Copies between devices and pools of
 * memory are plain copies and allocations. Streams and events are never freed. Times mean nothing. Device properties
 * lie where CUDA 13 has them. It is for Linux on x86-64. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int cudaError_t;
typedef struct {
    unsigned x, y, z;
} dim3;
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NO_KERNEL = 98,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901
};

#define MAX_DEVICES 4
#define DEVICE_BYTES ((size_t)8 << 30)

/* ---- trace, complaints, settings ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, text_lock = PTHREAD_MUTEX_INITIALIZER;
typedef struct {
    char *text;
    size_t size, room;
} Text;
static Text trace, complaints;
static int tracing;
static size_t limit;         /* of a device's memory, in bytes; 0 is all there is */
static int broken;           /* as after an illegal address: what every call returns from now on */
static int devices = 2;      /* how many there are */
static __thread int current; /* device */
static __thread int last_error;

static void add_line(Text *to, const char *format, va_list arguments) {
    char line[512];
    int n = vsnprintf(line, sizeof line - 1, format, arguments);
    if (n > (int)sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    pthread_mutex_lock(&text_lock);
    if (to->size + n > to->room) to->text = realloc(to->text, to->room = (to->room + n) * 2);
    memcpy(to->text + to->size, line, n);
    to->size += n;
    pthread_mutex_unlock(&text_lock);
}
static void say(const char *format, ...) {
    if (!tracing) return;
    va_list arguments;
    va_start(arguments, format);
    add_line(&trace, format, arguments);
    va_end(arguments);
}
static void complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_line(&complaints, format, arguments);
    va_end(arguments);
}
/* Moves the lines of the trace, or the complaints, to `into` if they fit; returns how many bytes they are. */
static size_t take_text(Text *from, char *into, size_t room) {
    pthread_mutex_lock(&text_lock);
    size_t n = from->size;
    if (into && n <= room) memcpy(into, from->text, n), from->size = 0;
    pthread_mutex_unlock(&text_lock);
    return n;
}
size_t host_cuda_take_trace(char *into, size_t room) { return take_text(&trace, into, room); }
size_t host_cuda_take_complaints(char *into, size_t room) { return take_text(&complaints, into, room); }
void host_cuda_set_tracing(int on) { tracing = on; }
void host_cuda_set_limit(size_t bytes) { limit = bytes; }
void host_cuda_set_broken(int status) { broken = status; }
#define WORKING                                                                                                        \
    if (broken) return end(broken)

static cudaError_t end(cudaError_t status) {
    if (status) last_error = status, say("error status=%d", status);
    return status;
}
#define LOCKED(...)                                                                                                    \
    do {                                                                                                               \
        pthread_mutex_lock(&lock);                                                                                     \
        __VA_ARGS__;                                                                                                   \
        pthread_mutex_unlock(&lock);                                                                                   \
    } while (0)

/* ---- memory ---- */

typedef struct Block {
    char *at;
    size_t size;
    int device, pinned;
    struct Block *next;
} Block;
static Block *blocks; /* device memory in use, and pinned host memory, by address */
static struct {
    char *base, *shadow;
    size_t in_use;
} memory[MAX_DEVICES];

static void reserve(int device) {
    if (memory[device].base) return;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    memory[device].shadow = mmap(0, DEVICE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    memory[device].base = mmap(0, DEVICE_BYTES, PROT_NONE, flags, -1, 0);
}
static int device_of(const void *at) {
    for (int i = 0; i < MAX_DEVICES; i++)
        if (memory[i].base && (char *)at >= memory[i].base && (char *)at < memory[i].base + DEVICE_BYTES) return i;
    return -1;
}
/* Where the bytes of any address lie. */
static void *shadow_of(const void *at) {
    int device = device_of(at);
    return device < 0 ? (void *)at : memory[device].shadow + ((char *)at - memory[device].base);
}
static Block *find(const void *at) {
    for (Block *b = blocks; b; b = b->next)
        if ((char *)at >= b->at && (char *)at < b->at + b->size) return b;
    return 0;
}
static Block **place(char *at) {
    Block **b = &blocks;
    while (*b && (*b)->at < at)
        b = &(*b)->next;
    return b;
}
static Block *enter(char *at, size_t size, int device, int pinned) {
    Block *made = malloc(sizeof *made), **b = place(at);
    *made = (Block){at, size, device, pinned, *b};
    return *b = made;
}
static char *take(int device, size_t size) {
    reserve(device);
    if (limit && memory[device].in_use + size > limit) return 0;
    size_t whole = ((size ? size : 1) + 511) & ~(size_t)511;
    char *at = memory[device].base; /* first fit */
    for (Block *b = blocks; b; b = b->next)
        if (b->device == device && !b->pinned) {
            if (b->at - at >= (long)whole) break;
            at = b->at + ((b->size + 511) & ~(size_t)511);
        }
    if (at + whole > memory[device].base + DEVICE_BYTES) return 0;
    enter(at, size, device, 0);
    memory[device].in_use += size;
    memset(shadow_of(at), 0xA5, size < 65536 ? size : 65536);
    return at;
}
/* Whether the whole range is device memory in use. */
static int is_device(const void *at, size_t size) {
    Block *b = find(at);
    return b && !b->pinned && (char *)at + size <= b->at + b->size;
}
size_t host_cuda_in_use(int device) { return memory[device].in_use; }

/* ---- streams, events, graphs ---- */

typedef struct Event Event;
typedef struct Stream Stream;
typedef void Run(const unsigned *grid_and_block, size_t shared, char *arguments); /* calls a compiled kernel */
typedef struct Op {
    enum { COPY, SET, WAIT, KERNEL } kind;
    char *to, *from, *owned;
    size_t size;
    int value;
    Stream *stream;
    uint64_t until;
    Run *run;
    unsigned grid[6];
    size_t shared;
    int device;
    struct Op *next;
} Op;
typedef struct Graph {
    Op *first, **last;
} Graph;
struct Stream {
    int device, flags, gone;
    uint64_t queued, done;
    Op *first, **last;
    Graph *capture;
    int broken;
    Stream *next;
};
struct Event {
    Stream *stream;
    uint64_t seq;
};
static Stream *streams, null_stream = {.last = &null_stream.first};
static int capturing;

/* The streams of the handles 0 to 2 are the default one. */
static Stream *of(void *stream) { return (uintptr_t)stream <= 2 ? &null_stream : stream; }

static void execute(Op *op);
static void run_until(Stream *s, uint64_t seq) {
    while (s->done < seq && s->first) {
        Op *op = s->first;
        if (!(s->first = op->next)) s->last = &s->first;
        s->done++;
        execute(op);
        free(op->owned);
        free(op);
    }
}
static void drain(Stream *s) { run_until(s, s->queued); }
static void drain_device(int device) {
    drain(&null_stream);
    for (Stream *s = streams; s; s = s->next)
        if (s->device == device && !s->capture) drain(s);
}
static void valid(const char *at, size_t size, const char *what) {
    if (size && device_of(at) >= 0 && !is_device(at, size))
        complain("%s of memory that is free: %p %zu", what, at, size);
}
/* Device addresses in the arguments of a kernel, wherever they stand, as where their bytes lie. */
static void translate(char *arguments, size_t size, int device) {
    for (size_t i = 0; i + 8 <= size; i += 8) {
        char *at;
        memcpy(&at, arguments + i, 8);
        int its = device_of(at);
        if (its < 0) continue;
        if (its != device) complain("kernel on device %d given memory of device %d", device, its);
        if (!find(at) && !find(at - 1)) complain("kernel given memory that is free: %p", at);
        at = shadow_of(at);
        memcpy(arguments + i, &at, 8);
    }
}
/* Complains if what an argument of a kernel begins with is an address in this process's own memory, which a GPU cannot
 * read unless it is pinned. (Behind it there may be bytes that nobody has set.) */
void host_cuda_check_argument(const void *argument) {
    char *at;
    memcpy(&at, argument, 8);
    uintptr_t page = (uintptr_t)at & ~(uintptr_t)4095;
    if (page < 1 << 20 || msync((void *)page, 4096, MS_ASYNC)) return; /* no address at all */
    LOCKED(if (device_of(at) < 0 && !find(at)) complain("kernel given host memory: %p", at));
}
static void execute(Op *op) {
    if (op->kind == KERNEL) {
        translate(op->owned, op->size, op->device);
        op->run(op->grid, op->shared, op->owned);
        return;
    }
    valid(op->to, op->size, "write");
    if (op->from && !op->owned) valid(op->from, op->size, "read");
    char *to = shadow_of(op->to);
    if (op->kind == COPY) memmove(to, op->owned ? op->owned : shadow_of(op->from), op->size);
    if (op->kind == SET) memset(to, op->value, op->size);
    if (op->kind == WAIT && op->stream) run_until(op->stream, op->until);
}
static Op *copied(const Op *op) {
    Op *made = malloc(sizeof *made);
    *made = *op;
    made->next = 0;
    if (op->owned) made->owned = memcpy(malloc(op->size ? op->size : 1), op->owned, op->size);
    return made;
}
static void append(Stream *s, Op op) {
    if (s->gone) complain("work on a stream that is gone: %p", (void *)s);
    Op *made = malloc(sizeof *made);
    *made = op;
    made->next = 0;
    if (s->capture) {
        *s->capture->last = made, s->capture->last = &made->next;
        return;
    }
    *s->last = made, s->last = &made->next;
    s->queued++;
    /* The default stream waits for all blocking ones, and they for it. */
    if (s == &null_stream)
        for (Stream *other = streams; other; other = other->next)
            if (!(other->flags & 1)) drain(other);
    if (s != &null_stream && !(s->flags & 1)) drain(&null_stream);
    if (s == &null_stream) drain(s);
}
/* Whether a call that waits, or makes memory, may be made now; a capture that forbids it is broken by it. */
static int forbidden(Stream *s) {
    if (s && s->capture) {
        s->broken = 1;
        return 1;
    }
    if (!s && capturing)
        for (Stream *other = streams; other; other = other->next)
            if (other->capture) {
                other->broken = 1;
                return 1;
            }
    return 0;
}

int host_cuda_launch(Run *run, const char *name, const unsigned *grid, size_t shared, const char *arguments,
                     size_t size, void *stream) {
    say("cuLaunchKernel name=%s blocks=%u,%u,%u threads=%u,%u,%u device=%d stream=%p", name, grid[0], grid[1], grid[2],
        grid[3], grid[4], grid[5], current, stream);
    WORKING;
    Stream *s = of(stream);
    if (s != &null_stream && s->device != current) {
        complain("%s launched on device %d, on a stream of device %d", name, current, s->device);
        return end(INVALID_HANDLE);
    }
    Op op = {.kind = KERNEL, .run = run, .shared = shared, .size = size, .device = current};
    memcpy(op.grid, grid, sizeof op.grid);
    op.owned = memcpy(malloc(size + 8), arguments, size);
    LOCKED(append(s, op));
    return OK;
}

cudaError_t cudaStreamCreateWithFlags(void **out, unsigned flags) {
    Stream *s = calloc(1, sizeof *s);
    s->last = &s->first, s->flags = flags, s->device = current;
    LOCKED(s->next = streams; streams = s);
    *out = s;
    say("cudaStreamCreateWithFlags flags=%u device=%d stream=%p", flags, current, (void *)s);
    return OK;
}
cudaError_t cudaStreamCreate(void **out) { return cudaStreamCreateWithFlags(out, 0); }
cudaError_t cudaStreamCreateWithPriority(void **out, unsigned flags, int p) {
    return cudaStreamCreateWithFlags(out, flags);
}
cudaError_t cudaStreamDestroy(void *stream) {
    say("cudaStreamDestroy stream=%p", stream);
    Stream *s = of(stream); /* never freed: events may point to it, and a late use shall be seen */
    LOCKED(drain(s); s->gone = 1);
    return OK;
}
cudaError_t cudaStreamSynchronize(void *stream) {
    say("cudaStreamSynchronize stream=%p", stream);
    WORKING;
    Stream *s = of(stream);
    cudaError_t status = OK;
    LOCKED(if (forbidden(s)) status = CAPTURE_UNSUPPORTED; else drain(s));
    return end(status);
}
/* A query is no wait, and may find everything done. */
cudaError_t cudaStreamQuery(void *stream) {
    WORKING;
    Stream *s = of(stream);
    cudaError_t status = OK;
    LOCKED(if (forbidden(s)) status = CAPTURE_UNSUPPORTED; else drain(s));
    return end(status);
}
cudaError_t cudaDeviceSynchronize(void) {
    say("cudaDeviceSynchronize device=%d", current);
    WORKING;
    cudaError_t status = OK;
    LOCKED(if (forbidden(0)) status = CAPTURE_UNSUPPORTED; else drain_device(current));
    return end(status);
}
cudaError_t cudaStreamWaitEvent(void *stream, Event *event, unsigned flags) {
    say("cudaStreamWaitEvent stream=%p event=%p", stream, (void *)event);
    LOCKED(append(of(stream), (Op){.kind = WAIT, .stream = event->stream, .until = event->seq}));
    return OK;
}
cudaError_t cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    say("cudaLaunchHostFunc stream=%p", stream);
    LOCKED(drain(of(stream)));
    function(data);
    return OK;
}
cudaError_t cudaEventCreateWithFlags(Event **out, unsigned flags) {
    *out = calloc(1, sizeof **out);
    say("cudaEventCreateWithFlags flags=%u event=%p", flags, (void *)*out);
    return OK;
}
cudaError_t cudaEventCreate(Event **out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(Event *event) {
    say("cudaEventDestroy event=%p", (void *)event);
    return OK;
}
cudaError_t cudaEventRecord(Event *event, void *stream) {
    say("cudaEventRecord event=%p stream=%p", (void *)event, stream);
    WORKING;
    Stream *s = of(stream);
    LOCKED(event->stream = s; event->seq = s->queued);
    return OK;
}
cudaError_t cudaEventRecordWithFlags(Event *event, void *stream, unsigned flags) {
    return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(Event *event) {
    say("cudaEventSynchronize event=%p", (void *)event);
    WORKING;
    LOCKED(if (event->stream) run_until(event->stream, event->seq));
    return OK;
}
cudaError_t cudaEventQuery(Event *event) {
    WORKING;
    LOCKED(if (event->stream) run_until(event->stream, event->seq));
    return OK;
}
cudaError_t cudaEventElapsedTime(float *ms, void *start, void *stop) {
    *ms = 1;
    return OK;
}

cudaError_t cudaStreamBeginCapture(void *stream, int mode) {
    say("cudaStreamBeginCapture mode=%d stream=%p", mode, stream);
    Stream *s = of(stream);
    if (s == &null_stream) return end(CAPTURE_UNSUPPORTED);
    Graph *graph = calloc(1, sizeof *graph);
    graph->last = &graph->first;
    LOCKED(s->capture = graph; s->broken = 0; capturing += mode != 2);
    return OK;
}
cudaError_t cudaStreamEndCapture(void *stream, Graph **out) {
    say("cudaStreamEndCapture stream=%p", stream);
    Stream *s = of(stream);
    cudaError_t status = OK;
    LOCKED(*out = s->capture; s->capture = 0; capturing = 0; if (s->broken) status = CAPTURE_INVALIDATED, *out = 0);
    return end(status);
}
cudaError_t cudaStreamIsCapturing(void *stream, int *out) {
    Stream *s = of(stream);
    LOCKED(*out = !s->capture ? 0 : s->broken ? 2 : 1);
    return OK;
}
cudaError_t cudaGraphInstantiate(Graph **out, Graph *graph, unsigned long long flags) {
    *out = calloc(1, sizeof **out);
    (*out)->last = &(*out)->first;
    int count = 0;
    for (Op *op = graph->first; op; op = op->next, count++)
        *(*out)->last = copied(op), (*out)->last = &(*(*out)->last)->next;
    say("cudaGraphInstantiate graph=%p nodes=%d", (void *)*out, count);
    return OK;
}
cudaError_t cudaGraphLaunch(Graph *graph, void *stream) {
    say("cudaGraphLaunch graph=%p stream=%p", (void *)graph, stream);
    LOCKED(for (Op *op = graph->first; op; op = op->next) {
        Op *c = copied(op);
        append(of(stream), *c);
        free(c);
    });
    return OK;
}
cudaError_t cudaGraphDestroy(Graph *graph) {
    say("cudaGraphDestroy");
    return OK;
}
cudaError_t cudaGraphExecDestroy(Graph *graph) {
    say("cudaGraphExecDestroy");
    return OK;
}

/* ---- allocation and copies ---- */

cudaError_t cudaMalloc(void **out, size_t size) {
    WORKING;
    *out = 0;
    cudaError_t status = OK;
    LOCKED(if (forbidden(0)) status = CAPTURE_UNSUPPORTED;
           else if (size && !(*out = take(current, size))) status = OUT_OF_MEMORY);
    say("cudaMalloc bytes=%zu device=%d at=%p", size, current, *out);
    return end(status);
}
cudaError_t cudaFree(void *at) {
    say("cudaFree at=%p", at);
    WORKING;
    if (!at) return OK;
    cudaError_t status = OK;
    pthread_mutex_lock(&lock);
    Block **b = place(at), *gone = *b;
    if (!gone || gone->at != at || gone->pinned)
        status = INVALID_VALUE;
    else {
        drain_device(gone->device);
        memory[gone->device].in_use -= gone->size;
        memset(shadow_of(at), 0xDD, gone->size < 65536 ? gone->size : 65536);
        if (gone->size >= 1 << 20)
            madvise((char *)shadow_of(at) + 65536, (gone->size - 65536) & ~(size_t)4095, MADV_DONTNEED);
        *b = gone->next;
        free(gone);
    }
    pthread_mutex_unlock(&lock);
    return end(status);
}
cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags) {
    WORKING;
    if (posix_memalign(out, 4096, size ? size : 1)) return end(OUT_OF_MEMORY);
    LOCKED(enter(*out, size ? size : 1, current, 1));
    say("cudaHostAlloc bytes=%zu at=%p", size, *out);
    return OK;
}
cudaError_t cudaMallocHost(void **out, size_t size) { return cudaHostAlloc(out, size, 0); }
cudaError_t cudaFreeHost(void *at) {
    say("cudaFreeHost at=%p", at);
    if (!at) return OK;
    cudaError_t status = OK;
    pthread_mutex_lock(&lock);
    Block **b = place(at), *gone = *b;
    if (!gone || gone->at != at || !gone->pinned)
        status = INVALID_VALUE;
    else {
        drain_device(gone->device);
        *b = gone->next;
        free(gone);
        free(at);
    }
    pthread_mutex_unlock(&lock);
    return end(status);
}
/* Of a cudaMemcpyKind; 4 says that the addresses tell. */
static const char *name_of_kind(int kind, const void *to, const void *from) {
    static const char *names[] = {"HtoH", "HtoD", "DtoH", "DtoD"};
    if (kind == 4) kind = (device_of(from) >= 0) * 2 + (device_of(to) >= 0);
    return kind >= 0 && kind <= 3 ? names[kind] : "?";
}
static cudaError_t copy(char *to, const char *from, size_t size, int kind, Stream *s, int wait) {
    int to_device = device_of(to) >= 0, from_device = device_of(from) >= 0;
    if (kind == 4) kind = from_device * 2 + to_device;
    if (!size) return OK;
    if (kind < 0 || kind > 3 || from_device != kind / 2 || to_device != kind % 2) {
        complain("copy %s between other places: to %p from %p", name_of_kind(kind, to, from), to, from);
        return INVALID_VALUE;
    }
    if ((to_device && !is_device(to, size)) || (from_device && !is_device(from, size))) {
        complain("copy outside of what is allocated: to %p from %p", to, from);
        return INVALID_VALUE;
    }
    if (to < from + size && from < to + size) complain("copy onto itself: to %p from %p", to, from);
    Op op = {.kind = COPY, .to = to, .from = (char *)from, .size = size};
    Block *host = find(from_device ? to : from);
    int pageable = kind != 3 && !(host && host->pinned);
    if (s->capture) {
        if (wait) {
            s->broken = 1;
            return CAPTURE_UNSUPPORTED;
        }
    } else if (!from_device && pageable)
        op.owned = memcpy(malloc(size), from, size); /* what CUDA does: a staging buffer */
    append(s, op);
    if (!s->capture && (wait || (from_device && !to_device && pageable))) drain(s);
    return OK;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    say("cudaMemcpyAsync kind=%s bytes=%zu to=%p from=%p stream=%p", name_of_kind(kind, to, from), size, to, from,
        stream);
    WORKING;
    cudaError_t status;
    LOCKED(status = copy(to, from, size, kind, of(stream), 0));
    return end(status);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    say("cudaMemcpy kind=%s bytes=%zu to=%p from=%p", name_of_kind(kind, to, from), size, to, from);
    WORKING;
    cudaError_t status;
    LOCKED(status = forbidden(0) ? CAPTURE_UNSUPPORTED : copy(to, from, size, kind, &null_stream, 1));
    return end(status);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t dpitch, const void *from, size_t spitch, size_t width, size_t height,
                              int kind, void *stream) {
    say("cudaMemcpy2DAsync kind=%s bytes=%zu to=%p from=%p stream=%p", name_of_kind(kind, to, from), width * height, to,
        from, stream);
    cudaError_t status = OK;
    LOCKED(for (size_t i = 0; i < height && !status; i++) status =
               copy((char *)to + i * dpitch, (char *)from + i * spitch, width, kind, of(stream), 0));
    return end(status);
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, void *stream) {
    say("cudaMemsetAsync bytes=%zu to=%p stream=%p", size, to, stream);
    WORKING;
    cudaError_t status = OK;
    LOCKED(if (size && !is_device(to, size)) status = INVALID_VALUE;
           else if (size) append(of(stream), (Op){.kind = SET, .to = to, .value = value, .size = size}));
    return end(status);
}
cudaError_t cudaMemset(void *to, int value, size_t size) { return cudaMemsetAsync(to, value, size, 0); }
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *total = limit ? limit : DEVICE_BYTES;
    *available = *total - memory[current].in_use;
    return OK;
}
typedef struct {
    int type, device;
    void *devicePointer, *hostPointer;
    long reserved[8];
} Attributes;
cudaError_t cudaPointerGetAttributes(Attributes *out, const void *at) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&lock);
    Block *b = find(at);
    if (b)
        *out = (Attributes){.type = b->pinned ? 1 : 2,
                            .device = b->device,
                            .devicePointer = (void *)at,
                            .hostPointer = b->pinned ? (void *)at : 0};
    else
        out->device = -2;
    pthread_mutex_unlock(&lock);
    return OK;
}
cudaError_t cudaMallocFromPoolAsync(void **out, size_t size, void *pool, void *stream) { return cudaMalloc(out, size); }
cudaError_t cudaFreeAsync(void *at, void *stream) { return cudaFree(at); }
cudaError_t cudaMemPoolCreate(void **out, const void *props) {

    *out = malloc(8);
    return OK;
}
cudaError_t cudaMemPoolDestroy(void *pool) { return OK; }
cudaError_t cudaMemPoolGetAttribute(void *pool, int attribute, void *value) {
    memset(value, 0, 8);
    return OK;
}
cudaError_t cudaMemPoolSetAttribute(void *pool, int attribute, void *value) { return OK; }
cudaError_t cudaMemPoolTrimTo(void *pool, size_t keep) { return OK; }

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = devices;
    return OK;
}
cudaError_t cudaGetDevice(int *device) {
    *device = current;
    return OK;
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= devices) return end(INVALID_DEVICE);
    current = device;
    return OK;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return OK;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return OK;
}
/* cudaDeviceProp of CUDA 13: what follows `name` and what is set, at its distance in bytes. */
#define PROP_BYTES 1008
cudaError_t cudaGetDeviceProperties(char *prop, int device) {
    if (device < 0 || device >= devices) return end(INVALID_DEVICE);
    memset(prop, 0, PROP_BYTES);
    strcpy(prop, "host memory");
    memset(prop + 256, 0x10 + device, 16); /* uuid */
#define PUT(type, at, ...)                                                                                             \
    do {                                                                                                               \
        type v[] = {__VA_ARGS__};                                                                                      \
        memcpy(prop + (at), v, sizeof v);                                                                              \
    } while (0)
    PUT(size_t, 288, DEVICE_BYTES, 49152);                         /* totalGlobalMem, sharedMemPerBlock */
    PUT(int, 304, 65536, 32);                                      /* regsPerBlock, warpSize */
    PUT(size_t, 312, 2147483647);                                  /* memPitch */
    PUT(int, 320, 1024, 1024, 1024, 64, 2147483647, 65535, 65535); /* maxThreadsPerBlock, -Dim, maxGridSize */
    PUT(size_t, 352, 65536);                                       /* totalConstMem */
    PUT(int, 360, 9, 0);                                           /* major, minor */
    PUT(int, 384, 132);                                            /* multiProcessorCount */
    PUT(int, 392, 1);                                              /* canMapHostMemory */
    PUT(int, 560, 1);                                              /* concurrentKernels */
    PUT(int, 568, 1 + device);                                     /* pciBusID */
    PUT(int, 584, 3, 1);                                           /* asyncEngineCount, unifiedAddressing */
    PUT(int, 596, 50 << 20);                                       /* l2CacheSize */
    PUT(int, 604, 2048);                                           /* maxThreadsPerMultiProcessor */
    PUT(size_t, 624, 233472);                                      /* sharedMemPerMultiprocessor */
    PUT(int, 632, 65536);                                          /* regsPerMultiprocessor */
    PUT(int, 668, 1);                                              /* cooperativeLaunch */
    PUT(size_t, 672, 232448);                                      /* sharedMemPerBlockOptin */
    PUT(int, 688, 32);                                             /* maxBlocksPerMultiProcessor */
    return OK;
}
/* By cudaDeviceAttr; others are 0. */
static const struct {
    int attribute, value;
} ATTRIBUTES[] = {
    {1, 1024},       {2, 1024},    {3, 1024},    /* threads per block, and its width and height */
    {5, 2147483647}, {6, 65535},   {7, 65535},   /* the grid's width, height and depth */
    {8, 49152},      {81, 232448}, {97, 232448}, /* shared memory per block and multiprocessor, and at most */
    {10, 32},                                    /* threads per warp */
    {12, 65536},                                 /* registers per block */
    {16, 132},       {39, 2048},                 /* multiprocessors, and threads on each */
    {38, 50 << 20},                              /* L2 cache */
    {41, 1},                                     /* unified addressing */
    {75, 9},         {76, 0},                    /* compute capability */
};
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    *value = 0;
    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; i++)
        if (ATTRIBUTES[i].attribute == attribute) *value = ATTRIBUTES[i].value;
    return OK;
}
cudaError_t cudaGetLastError(void) {
    int e = last_error;
    last_error = OK;
    return e;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }
static const struct {
    int status;
    const char *name, *text;
} ERRORS[] = {
    {OK, "cudaSuccess", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {NO_KERNEL, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {INVALID_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {ILLEGAL_ADDRESS, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};
static int place_of_error(int status) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].status == status) return i;
    return -1;
}
const char *cudaGetErrorName(int status) {
    int i = place_of_error(status);
    return i < 0 ? "cudaErrorUnknown" : ERRORS[i].name;
}
const char *cudaGetErrorString(int status) {
    int i = place_of_error(status);
    return i < 0 ? "unknown error" : ERRORS[i].text;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version, unsigned long long flags,
                                             int *status) {
    *out = 0;
    if (status) *status = 1;
    return end(NOT_FOUND);
}

/* ---- kernels of CUDA binaries, of which there are none that could run ---- */

typedef struct {
    const void *host;
    const char *name;
} Function;
static Function *functions;
static size_t function_count, function_room;
void **__cudaRegisterFatBinary(void *binary) { return calloc(1, sizeof(void *)); }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *a,
                            void *b, void *c, void *d, int *e) {
    if (function_count == function_room)
        functions = realloc(functions, (function_room = function_room * 2 + 1024) * sizeof *functions);
    functions[function_count++] = (Function){host, name};
}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
                       int global) {}
static const char *name_of(const void *host) {
    for (size_t i = 0; i < function_count; i++)
        if (functions[i].host == host) return functions[i].name;
    return "?";
}
static cudaError_t launch(const char *how, const void *function, void *stream) {
    say("%s name=%.300s device=%d stream=%p", how, name_of(function), current, stream);
    complain("%s of a CUDA binary: %.300s", how, name_of(function));
    return end(NO_KERNEL);
}
static __thread struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} configured;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    configured.grid = grid, configured.block = block, configured.shared = shared, configured.stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
    *grid = configured.grid, *block = configured.block, *shared = configured.shared, *stream = configured.stream;
    return OK;
}
cudaError_t __cudaGetKernel(const void **kernel, const void *function) {
    *kernel = function;
    return OK;
}
cudaError_t __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               void *stream) {
    return launch("cudaLaunchKernel", kernel, stream);
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             void *stream) {
    return launch("cudaLaunchKernel", function, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        void *stream) {
    return launch("cudaLaunchCooperativeKernel", function, stream);
}
cudaError_t cudaLaunchKernelExC(const void *config, const void *function, void **arguments) {
    return launch("cudaLaunchKernelExC", function, 0);
}
cudaError_t cudaFuncGetAttributes(int *out, const void *function) {
    memset(out, 0, 144);
    out[6] = 1024;
    return OK;
}
cudaError_t cudaFuncSetAttribute(const void *function, int attribute, int value) { return OK; }
cudaError_t cudaKernelSetAttributeForDevice(const void *kernel, int attribute, int value, int device) { return OK; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int size, size_t shared,
                                                                   unsigned flags) {
    *blocks = 1;
    return OK;
}
cudaError_t cudaLibraryLoadData(void **out, const void *code, void *a, void *b, unsigned c, void *d, void *e,
                                unsigned f) {
    return end(NOT_SUPPORTED);
}
cudaError_t cudaLibraryGetKernel(void **out, void *library, const char *name) { return end(NOT_SUPPORTED); }
cudaError_t cudaLibraryUnload(void *library) { return OK; }
/* What CuPy asks for besides. */
cudaError_t cudaStreamGetPriority(void *stream, int *p) {
    *p = 0;
    return OK;
}
cudaError_t cudaStreamGetFlags(void *stream, unsigned *flags) {
    *flags = of(stream)->flags;
    return OK;
}
cudaError_t cudaStreamGetDevice(void *stream, int *device) {
    *device = of(stream)->device;
    return OK;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) {
    *can = a == b;
    return OK;
}
cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned flags) { return OK; }
cudaError_t cudaDeviceGetPCIBusId(char *to, int size, int device) {
    snprintf(to, size, "0000:%02x:00.0", device + 1);
    return OK;
}
cudaError_t cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size, void *stream) {
    return cudaMemcpyAsync(to, from, size, 3, stream);
}
cudaError_t cudaMallocAsync(void **out, size_t size, void *stream) { return cudaMalloc(out, size); }
cudaError_t cudaHostRegister(void *at, size_t size, unsigned flags) { return OK; }
cudaError_t cudaHostUnregister(void *at) { return OK; }
cudaError_t cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id) {
    if (id) *id = 1;
    return cudaStreamIsCapturing(stream, status);
}
int host_cuda_missing(const char *name) {
    complain("there is no %s", name);
    return NOT_SUPPORTED;
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, int kind) {
    return end(NOT_SUPPORTED);
}
