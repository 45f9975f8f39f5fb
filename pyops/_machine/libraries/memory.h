/* SPDX-License-Identifier: MIT. The names are those that numba (BSD-2-Clause) calls; the text is not of numba. */
/* What numba's machine code calls for memory: reference-counted memory for arrays, and memory for lists. */
#include <stdlib.h>

typedef struct {
  size_t references;
  void (*destroy)(void *data, size_t size, void *info);
  void *info, *data;
  size_t size;
  void *allocator;
} MemInfo;

void *NRT_Allocate(size_t size) { return malloc(size); }
void *NRT_Allocate_External(size_t size, void *allocator) { return (void)allocator, malloc(size); }
void *NRT_Reallocate(void *memory, size_t size) { return realloc(memory, size); }
void NRT_Free(void *memory) { free(memory); }

MemInfo *NRT_MemInfo_alloc_aligned(size_t size, uint32_t align) {
  MemInfo *made = size > SIZE_MAX / 2 ? NULL : malloc(sizeof *made + size + 2 * (size_t)align);
  if (!made) return NULL;
  uintptr_t data = (uintptr_t)(made + 1);
  if (align) data = (data + align - 1) / align * align;
  *made = (MemInfo){1, NULL, NULL, (void *)data, size, NULL};
  return made;
}
MemInfo *NRT_MemInfo_alloc_safe_aligned(size_t size, uint32_t align) { return NRT_MemInfo_alloc_aligned(size, align); }
MemInfo *NRT_MemInfo_alloc(size_t size) { return NRT_MemInfo_alloc_aligned(size, 16); }
MemInfo *NRT_MemInfo_alloc_safe(size_t size) { return NRT_MemInfo_alloc_aligned(size, 16); }
MemInfo *NRT_MemInfo_alloc_dtor_safe(size_t size, void (*destroy)(void *, size_t, void *)) {
  MemInfo *made = NRT_MemInfo_alloc_aligned(size, 16);
  if (made) made->destroy = destroy;
  return made;
}
void NRT_MemInfo_call_dtor(MemInfo *info) {
  if (info->destroy) info->destroy(info->data, info->size, info->info);
  free(info);
}

static void free_list(void *data, size_t size, void *destroy_items) {
  (void)size;
  if (destroy_items) ((void (*)(void *))destroy_items)(data);
  free(data);
}
MemInfo *NRT_MemInfo_new_varsize_dtor(size_t size, void *destroy_items) {
  MemInfo *made = malloc(sizeof *made);
  void *data = malloc(size ? size : 1);
  if (!made || !data) return free(made), free(data), NULL;
  *made = (MemInfo){1, free_list, destroy_items, data, size, NULL};
  return made;
}
MemInfo *NRT_MemInfo_new_varsize(size_t size) { return NRT_MemInfo_new_varsize_dtor(size, NULL); }
void *NRT_MemInfo_varsize_alloc(MemInfo *info, size_t size) {
  info->data = malloc(size ? size : 1);
  info->size = info->data ? size : 0;
  return info->data;
}
void *NRT_MemInfo_varsize_realloc(MemInfo *info, size_t size) {
  void *data = realloc(info->data, size ? size : 1);
  if (data) info->data = data, info->size = size;
  return data;
}
void NRT_MemInfo_varsize_free(MemInfo *info, void *data) {
  free(data);
  if (data == info->data) info->data = NULL;
}

/* Writes the strides of an array in another shape and returns 1, or returns 0 if that needs a copy. The dimensions
   fall into the smallest groups of the same product; those of each group must lie in memory one after the other. */
int numba_attempt_nocopy_reshape(int64_t rank, const int64_t *dims, const int64_t *strides, int64_t new_rank,
                                 const int64_t *new_dims, int64_t *new_strides, int64_t item, int fortran) {
  int64_t size[MOST_DIMS], stride[MOST_DIMS], count = 0, at = 0, total = 1, new_total = 1;
  if (fortran || rank > MOST_DIMS) return 0;
  for (int64_t i = 0; i < rank; i++) total *= dims[i];
  for (int64_t i = new_rank; i--;) new_strides[i] = item * new_total, new_total *= new_dims[i];
  if (!total || !new_total) return total == new_total;
  for (int64_t i = 0; i < rank; i++)
    if (dims[i] != 1) size[count] = dims[i], stride[count++] = strides[i];
  for (int64_t next = 0; next < new_rank;) {
    int64_t first = next, begin = at, wanted = new_dims[next++];
    if (at == count) { /* only ones are left */
      new_strides[first] = item;
      if (wanted != 1) return 0;
      continue;
    }
    for (int64_t have = size[at++]; have != wanted;)
      if (wanted < have) {
        if (next == new_rank) return 0;
        wanted *= new_dims[next++];
      } else {
        if (at == count) return 0;
        have *= size[at++];
      }
    for (int64_t i = begin; i + 1 < at; i++)
      if (stride[i] != size[i + 1] * stride[i + 1]) return 0;
    int64_t step = stride[at - 1];
    for (int64_t i = next - 1; i >= first; i--) new_strides[i] = step, step *= new_dims[i];
  }
  return at == count;
}
