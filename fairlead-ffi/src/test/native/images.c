/*
 * Images as compilers make them: PTX, cubins, fatbins. What is read of them: the architecture, as a
 * driver does to find code for its device, and the kernels with the sizes of their parameters.
 * Their code is not run: a kernel is one that is built in, of the same name and sizes, or one of a
 * library that a test names (fairlead-cli's emulated-gpu.cpp makes such libraries).
 */
#include "standin.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t FATBIN_MAGIC = 0xBA55ED50;

struct fatbin {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};

struct part {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, unknown;
  uint16_t minor, major;
  uint32_t architecture, name, name_bytes, unknown2;
  uint64_t flags;
};

enum { PTX_PART = 1, ELF_PART = 2, EM_CUDA_MACHINE = 190, EXACT = 0x100000, FAMILY = 0x200000 };

static int architecture(void) { return 10 * device_attribute(75) + device_attribute(76); }

/* --- which code is for the device ------------------------------------------------------------*/

static bool is_elf(const void *image) { return memcmp(image, ELFMAG, SELFMAG) == 0; }

static bool is_fatbin(const void *image) {
  return memcmp(image, &FATBIN_MAGIC, sizeof FATBIN_MAGIC) == 0;
}

bool image_is_real(const void *image) {
  if (is_elf(image) || is_fatbin(image)) return true;
  return strncmp(image, "//standin", 9) != 0 && strstr(image, ".version") != NULL;
}

static bool elf_fits(int made_for, uint64_t flags) {
  int device = architecture();
  if (flags & EXACT) return made_for == device;
  return made_for <= device && made_for / 10 == device / 10;
}

static bool ptx_fits(int made_for, uint64_t flags) {
  int device = architecture();
  if (flags & EXACT) return made_for == device;
  if (flags & FAMILY) return made_for <= device && made_for / 10 == device / 10;
  return made_for <= device;
}

static int elf_architecture(const Elf64_Ehdr *elf) {
  return elf->e_ident[EI_ABIVERSION] >= 8 ? elf->e_flags >> 8 & 0xFF : elf->e_flags & 0xFF;
}

/* --- cubins ----------------------------------------------------------------------------------*/

static const Elf64_Shdr *section_named(const Elf64_Ehdr *elf, const char *prefix,
                                       const char *name) {
  const Elf64_Shdr *all = (const Elf64_Shdr *)((const char *)elf + elf->e_shoff);
  const char *names = (const char *)elf + all[elf->e_shstrndx].sh_offset;
  size_t length = strlen(prefix);
  for (int i = 0; i < elf->e_shnum; i++) {
    const char *each = names + all[i].sh_name;
    if (strncmp(each, prefix, length) == 0 && strcmp(each + length, name) == 0) return &all[i];
  }
  return NULL;
}

/* Form, number, then two bytes of value or length; 0x17 with form 4 is a parameter. */
static int parameters(const Elf64_Ehdr *elf, const Elf64_Shdr *info, size_t *sizes) {
  const unsigned char *at = (const unsigned char *)elf + info->sh_offset, *end = at + info->sh_size;
  int count = 0;
  while (at < end) {
    uint16_t value;
    memcpy(&value, at + 2, sizeof value);
    if (at[0] == 4 && at[1] == 0x17) {
      uint16_t ordinal;
      uint32_t flags;
      memcpy(&ordinal, at + 8, sizeof ordinal);
      memcpy(&flags, at + 12, sizeof flags);
      if (ordinal >= MAX_PARAMETERS) return -1;
      sizes[ordinal] = flags >> 18;
      if (ordinal >= count) count = ordinal + 1;
    }
    at += 4 + (at[0] == 4 ? value : 0);
  }
  return count;
}

static CUresult read_elf(const Elf64_Ehdr *elf, image_kernel *each, void *module,
                         struct log *log) {
  static const char CONSTANTS[] = ".nv.constant0.";
  if (elf->e_machine != EM_CUDA_MACHINE) {
    snprintf(log->text, sizeof log->text, "an ELF file of machine %d is no cubin", elf->e_machine);
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const Elf64_Shdr *all = (const Elf64_Shdr *)((const char *)elf + elf->e_shoff);
  const char *names = (const char *)elf + all[elf->e_shstrndx].sh_offset;
  for (int i = 0; i < elf->e_shnum; i++) {
    const char *name = names + all[i].sh_name;
    if (strncmp(name, CONSTANTS, sizeof CONSTANTS - 1) != 0) continue;
    name += sizeof CONSTANTS - 1;
    const Elf64_Shdr *info = section_named(elf, ".nv.info.", name);
    size_t sizes[MAX_PARAMETERS] = {0};
    int count = info == NULL ? 0 : parameters(elf, info, sizes);
    if (count < 0) return CUDA_ERROR_INVALID_IMAGE;
    CHECK(each(module, name, sizes, count, log));
  }
  return CUDA_SUCCESS;
}

/* --- PTX -------------------------------------------------------------------------------------*/

static size_t parameter_bytes(const char *text, const char *end) {
  const char *at = text;
  while (at < end && !(at[0] == '.' && strchr("bsuf", at[1]) != NULL && isdigit(at[2]))) at++;
  if (at == end) return 0;
  size_t bytes = strtoul(at + 2, NULL, 10) / 8;
  const char *array = memchr(at, '[', (size_t)(end - at));
  return array == NULL ? bytes : bytes * strtoul(array + 1, NULL, 10);
}

static CUresult read_entry(const char *entry, image_kernel *each, void *module, struct log *log) {
  char name[NAME_BYTES];
  if (sscanf(entry, ".entry %63[A-Za-z0-9_$%]", name) != 1) return CUDA_ERROR_INVALID_PTX;
  size_t sizes[MAX_PARAMETERS];
  int count = 0;
  const char *open = entry + strcspn(entry, "({");
  const char *end = *open == '(' ? strchr(open, ')') : open;
  if (end == NULL) return CUDA_ERROR_INVALID_PTX;
  for (const char *at = open; (at = strstr(at, ".param")) != NULL && at < end; at += 6) {
    const char *comma = memchr(at, ',', (size_t)(end - at));
    if (count == MAX_PARAMETERS) return CUDA_ERROR_INVALID_PTX;
    sizes[count++] = parameter_bytes(at + 6, comma == NULL ? end : comma);
  }
  return each(module, name, sizes, count, log);
}

static CUresult read_ptx(const char *text, image_kernel *each, void *module, struct log *log) {
  const char *target = strstr(text, ".target");
  int version, made_for;
  char suffix = ' ';
  if (target == NULL || sscanf(target, ".target sm_%d%c", &made_for, &suffix) < 1 ||
      sscanf(strstr(text, ".version"), ".version %d", &version) != 1) {
    snprintf(log->text, sizeof log->text, "PTX without a .target or .version");
    return CUDA_ERROR_INVALID_PTX;
  }
  if (version + 4 > g.version / 1000) { /* CUDA 11 came with 7, 12 with 8, 13 with 9 */
    snprintf(log->text, sizeof log->text, "PTX of version %d, and the driver is for CUDA %d",
             version, g.version / 1000);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  if (!ptx_fits(made_for, suffix == 'a' ? EXACT : suffix == 'f' ? FAMILY : 0)) {
    snprintf(log->text, sizeof log->text, "the .target is sm_%d%c, the device sm_%d", made_for,
             suffix, architecture());
    return CUDA_ERROR_INVALID_PTX;
  }
  int entries = 0;
  for (const char *at = text; (at = strstr(at, ".entry")) != NULL; at += 6) {
    const char *line = at;
    while (line > text && line[-1] != '\n') line--;
    const char *comment = strstr(line, "//");
    if (comment != NULL && comment < at) continue;
    CHECK(read_entry(at, each, module, log));
    entries++;
  }
  if (entries > 0) return CUDA_SUCCESS;
  snprintf(log->text, sizeof log->text, "PTX without an entry that can be read");
  return CUDA_ERROR_INVALID_PTX;
}

/* --- fatbins ---------------------------------------------------------------------------------*/

static bool part_fits(const struct part *part) {
  int made_for = (int)part->architecture;
  return part->kind == ELF_PART ? elf_fits(made_for, part->flags) : ptx_fits(made_for, part->flags);
}

/* Machine code before PTX, then the newest. */
static bool better(const struct part *one, const struct part *other) {
  if (other == NULL) return true;
  return one->kind != other->kind ? one->kind == ELF_PART
                                  : one->architecture > other->architecture;
}

static CUresult read_fatbin(const struct fatbin *fatbin, image_kernel *each, void *module,
                            struct log *log) {
  const struct part *best = NULL;
  const char *at = (const char *)fatbin + fatbin->header_bytes, *end = at + fatbin->bytes;
  while (at < end) {
    const struct part *part = (const struct part *)at;
    if (part_fits(part) && better(part, best)) best = part;
    at += part->header_bytes + part->bytes;
  }
  if (best == NULL) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (best->compressed_bytes != 0) {
    snprintf(log->text, sizeof log->text, "the stand-in reads no compressed code");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const char *body = (const char *)best + best->header_bytes;
  if (best->kind == ELF_PART) return read_elf((const Elf64_Ehdr *)body, each, module, log);
  char *text = strndup(body, best->bytes);
  if (text == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult status = read_ptx(text, each, module, log);
  free(text);
  return status;
}

CUresult image_read(const void *image, image_kernel *each, void *module, struct log *log) {
  if (is_fatbin(image)) return read_fatbin(image, each, module, log);
  if (!is_elf(image)) return read_ptx(image, each, module, log);
  if (!elf_fits(elf_architecture(image), 0)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  return read_elf(image, each, module, log);
}

/* --- a library of kernels --------------------------------------------------------------------*/

static const char *(*signature)(const char *name);
static const char *(*launch)(const char *name, unsigned blocks, unsigned threads, unsigned first,
                             unsigned end, int descending, void **arguments);

/* Answers whether it could be loaded; it stays so. */
EXPORT int standin_set_kernels(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 0;
  lock();
  *(void **)&signature = dlsym(library, "emulated_signature");
  *(void **)&launch = dlsym(library, "emulated_launch");
  bool found = signature != NULL && launch != NULL;
  unlock();
  return found;
}

/* Such as "in(F64), out(F64), I32"; NULL if it has no such kernel. */
const char *library_signature(const char *name) {
  return signature == NULL || launch == NULL ? NULL : signature(name);
}

/* Not under the lock. */
int library_run(const struct launch *launched) {
  void *arguments[MAX_PARAMETERS];
  for (int i = 0; i < launched->layout.count; i++) {
    arguments[i] = (void *)(launched->arguments + launched->layout.offset[i]);
  }
  const char *fault = launch(launched->name, launched->blocks, launched->block, 0,
                             launched->blocks, 0, arguments);
  if (fault == NULL) return 0;
  fprintf(stderr, "stand-in: %s\n", fault);
  return CUDA_ERROR_LAUNCH_FAILED;
}
