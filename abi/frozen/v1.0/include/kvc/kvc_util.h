/* Reading and writing the growable structs of kvc.h, for both sides of the line.
 *
 * C11 and C++11 and later; header only; no allocation. A status other than KVC_OK means that
 * nothing was written.
 *
 * In-structs:  kvc_open mine; s = KVC_READ(kvc_open, &mine, theirs);       known prefix, rest zero
 *              then KVC_REFUSE_BITS(mine.flags, KVC_OPEN_FLAGS_ALL), KVC_REFUSE_SET(mine.reserved0)
 * Lists:       s = KVC_LIST_CHECK(kvc_group, &mine.groups);
 *              s = KVC_READ_AT(kvc_group, &group, &mine.groups, i);
 * Out-structs: KVC_CLEAR(&mine); ...; s = KVC_WRITE(theirs, &mine);        never past their room
 */
#ifndef KVC_KVC_UTIL_H_
#define KVC_KVC_UTIL_H_

#include <string.h>

#include <kvc/kvc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Attributes of a slot, as in its tag line (kvc_calls.def). */
enum { KVC_ATTR_NOWAIT = 1, KVC_ATTR_NOALLOC = 2, KVC_ATTR_PURE = 4, KVC_ATTR_CALLS_HOST = 8 };

/* kvc_open_least and so on: the size of each growable struct in 1.0. */
enum {
#define KVC_STRUCT(type, bytes) type##_least = bytes,
#include <kvc/kvc_calls.def>
  KVC_STRUCT_BYTES_MAX = 4096 /* a struct_size beyond it is garbage, not growth */
};

#define KVC_CLEAR(p) (memset((p), 0, sizeof *(p)), (p)->struct_size = (uint32_t)sizeof *(p))
#define KVC_READ(T, dst, src) kvc_read((dst), sizeof(T), (src), T##_least)
#define KVC_READ_AT(T, dst, list, i) kvc_read_at((dst), sizeof(T), (list), (i), T##_least)
#define KVC_LIST_CHECK(T, list) kvc_list_check((list), T##_least)
#define KVC_WRITE(dst, src) kvc_write((dst), (src), sizeof *(src), sizeof(uint32_t))
#define KVC_REFUSE_BITS(flags, known) \
  (((uint64_t)(flags) & ~(uint64_t)(known)) != 0 ? KVC_E_UNSUPPORTED : KVC_OK)
#define KVC_REFUSE_SET(reserved) ((reserved) != 0 ? KVC_E_UNSUPPORTED : KVC_OK)

/* How much of a struct is real is known at run time only; compilers that see the object behind the
   pointer warn about bytes that are never touched. */
#define KVC_FORGET_OBJECT(p) __asm__("" : "+r"(p))

/* 1 and *out, or 0 (and *out untouched) if the result does not fit 64 bits. */
static inline int kvc_add(uint64_t a, uint64_t b, uint64_t *out) {
  if (a > UINT64_MAX - b) return 0;
  *out = a + b;
  return 1;
}
static inline int kvc_mul(uint64_t a, uint64_t b, uint64_t *out) {
  if (a != 0 && b > UINT64_MAX / a) return 0;
  *out = a * b;
  return 1;
}

/* In: copies the known prefix, zeroes the rest of dst; dst's struct_size tells how much is real.
   Requires least <= dst_size. KVC_E_ARG: no struct, fewer than `least` bytes, or a garbage size.
   KVC_E_UNSUPPORTED: a newer caller uses a field that we do not know: refused, not ignored. */
static inline kvc_status kvc_read(void *dst, size_t dst_size, const void *src, size_t least) {
  const unsigned char *bytes = (const unsigned char *)src;
  uint32_t n = 0;
  size_t i;
  if (src == NULL) return KVC_E_ARG;
  KVC_FORGET_OBJECT(bytes);
  memcpy(&n, bytes, sizeof n);
  if (n < sizeof n || n < least || n > KVC_STRUCT_BYTES_MAX) return KVC_E_ARG;
  for (i = dst_size; i < n; ++i) {
    if (bytes[i] != 0) return KVC_E_UNSUPPORTED;
  }
  if (n > dst_size) n = (uint32_t)dst_size;
  memset(dst, 0, dst_size);
  memcpy(dst, bytes, n);
  memcpy(dst, &n, sizeof n);
  return KVC_OK;
}

/* Out: fills the leading bytes that the reader has room for and sets its struct_size to them.
   KVC_E_ARG: no struct, or room for fewer than `least` bytes. */
static inline kvc_status kvc_write(void *dst, const void *src, size_t src_size, size_t least) {
  uint32_t room = 0;
  uint32_t n;
  if (dst == NULL) return KVC_E_ARG;
  KVC_FORGET_OBJECT(dst);
  memcpy(&room, dst, sizeof room);
  if (room < sizeof room || room < least) return KVC_E_ARG;
  n = room < src_size ? room : (uint32_t)src_size;
  memcpy(dst, src, n);
  memcpy(dst, &n, sizeof n);
  return KVC_OK;
}

/* A list that somebody passed: may elements of at least `least` bytes be read from it? An empty
   list may be all zero. KVC_E_ARG: no data, a stride that is too short, a size beyond 64 bits. */
static inline kvc_status kvc_list_check(const kvc_list *list, size_t least) {
  uint64_t bytes = 0;
  if (list == NULL) return KVC_E_ARG;
  if (list->reserved0 != 0) return KVC_E_UNSUPPORTED;
  if (list->count == 0) return KVC_OK;
  if (list->data == NULL || list->stride < least) return KVC_E_ARG;
  if (!kvc_mul(list->count, list->stride, &bytes)) return KVC_E_ARG;
  return bytes > UINT64_MAX - (uint64_t)(uintptr_t)list->data ? KVC_E_ARG : KVC_OK;
}

/* Element i of a checked list. Requires i < count. */
static inline const void *kvc_list_at(const kvc_list *list, uint64_t i) {
  return (const unsigned char *)list->data + i * list->stride;
}

/* kvc_read of element i of a checked list; an element that claims more than the stride is
   KVC_E_ARG, as is i >= count. */
static inline kvc_status kvc_read_at(void *dst, size_t dst_size, const kvc_list *list, uint64_t i,
                                     size_t least) {
  uint32_t n = 0;
  if (i >= list->count || list->stride < sizeof n) return KVC_E_ARG;
  memcpy(&n, kvc_list_at(list, i), sizeof n);
  if (n > list->stride) return KVC_E_ARG;
  return kvc_read(dst, dst_size, kvc_list_at(list, i), least);
}

/* Writes element i of a caller's array with elements of `stride` bytes (stats, take_events): at
   most stride bytes, zero behind src, struct_size = what is real. KVC_E_ARG: stride < least. */
static inline kvc_status kvc_write_at(void *array, uint32_t stride, uint64_t i, const void *src,
                                      size_t src_size, size_t least) {
  unsigned char *dst = (unsigned char *)array + i * stride;
  const uint32_t n = stride < src_size ? stride : (uint32_t)src_size;
  if (array == NULL || stride < sizeof n || stride < least) return KVC_E_ARG;
  memcpy(dst, src, n);
  memset(dst + n, 0, stride - n);
  memcpy(dst, &n, sizeof n);
  return KVC_OK;
}

static inline kvc_list kvc_list_of(const void *data, uint64_t count, size_t stride) {
  kvc_list list;
  list.data = data;
  list.count = count;
  list.stride = (uint32_t)stride;
  list.reserved0 = 0;
  return list;
}

static inline kvc_bytes kvc_bytes_of(const void *data, uint64_t size) {
  kvc_bytes bytes;
  bytes.data = (const uint8_t *)data;
  bytes.size = size;
  return bytes;
}

/* Of a terminated string; NULL: empty. */
static inline kvc_bytes kvc_text_of(const char *text) {
  return kvc_bytes_of(text, text == NULL ? 0 : strlen(text));
}

/* The answer of a pure query (explain, last_error): *needed is always set; KVC_E_ROOM and nothing
   written if cap is too small; NULL with 0 asks for the size (KVC_OK if it is 0). */
static inline kvc_status kvc_put(char *buf, uint64_t cap, uint64_t *needed, kvc_bytes text) {
  if (needed == NULL) return KVC_E_ARG;
  *needed = text.size;
  if (buf == NULL && cap != 0) return KVC_E_ARG;
  if (cap < text.size) return KVC_E_ROOM;
  if (text.size != 0) memcpy(buf, text.data, (size_t)text.size);
  return KVC_OK;
}

#ifdef __cplusplus
}
#endif
#endif /* KVC_KVC_UTIL_H_ */
