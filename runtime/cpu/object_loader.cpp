#include "runtime/cpu/object_loader.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "runtime/cpu/cpu_features.h"

namespace ingot::runtime {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxImage = uint64_t{256} << 20;  // far below the 2 GiB that relative addresses reach
constexpr uint64_t kStub = 16;                       // jmp *address(%rip), two bytes of padding, the address

uint64_t align_to(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

/// Memory of one linked object.
class Image {
 public:
  static Result<std::shared_ptr<Image>> create(uint64_t bytes) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      return make_error(ErrorKind::OutOfMemory, fmt::format("{} bytes for code: {}", bytes, std::strerror(errno)));
    return std::make_shared<Image>(static_cast<uint8_t*>(p), bytes);
  }
  Image(uint8_t* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  Image(const Image&) = delete;
  ~Image() { ::munmap(data_, bytes_); }
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_;
  uint64_t bytes_;
};

/// A kind of section, by what its pages may do.
enum Kind { kCode, kReadOnly, kWritable, kKinds };

class Linker {
 public:
  explicit Linker(std::span<const uint8_t> object) : object_(object) {}

  Result<CpuCode> link(const std::string& function) {
    INGOT_TRY(read_sections());
    INGOT_TRY(read_symbols());
    INGOT_TRY(lay_out());
    for (size_t i = 0; i < sections_.size(); ++i)
      if (sections_[i].sh_type == SHT_RELA) INGOT_TRY(relocate(sections_[i]));
    INGOT_TRY(protect());
    for (size_t i = 0; i < symbols_.size(); ++i) {
      const Elf64_Sym& s = symbols_[i];
      if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || s.st_shndx == SHN_UNDEF || names_[i] != function) continue;
      CpuCode code;
      code.function = reinterpret_cast<CpuFunction>(INGOT_TRY(address_of(i)));
      code.owner = image_;
      return code;
    }
    return invalid(fmt::format("the object has no function {}", function));
  }

 private:
  template <class T>
  Result<std::vector<T>> table(uint64_t offset, uint64_t count, const char* what) const {
    if (offset > object_.size() || count > (object_.size() - offset) / sizeof(T))
      return invalid(fmt::format("the {} lies outside of the object", what));
    std::vector<T> out(count);
    if (count) std::memcpy(out.data(), object_.data() + offset, count * sizeof(T));
    return out;
  }

  Status read_sections() {
    const auto headers = INGOT_TRY(table<Elf64_Ehdr>(0, 1, "header"));
    const Elf64_Ehdr& h = headers[0];
    if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_type != ET_REL || h.e_machine != EM_X86_64 ||
        h.e_shentsize != sizeof(Elf64_Shdr))
      return invalid("not a relocatable x86-64 object");
    sections_ = INGOT_TRY(table<Elf64_Shdr>(h.e_shoff, h.e_shnum, "section table"));
    for (const Elf64_Shdr& s : sections_)
      if (s.sh_type != SHT_NOBITS &&
          (s.sh_offset > object_.size() || s.sh_size > object_.size() - s.sh_offset))
        return invalid("a section lies outside of the object");
    return {};
  }

  Status read_symbols() {
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_SYMTAB) continue;
      if (!symbols_.empty()) return invalid("the object has two symbol tables");
      symbols_ = INGOT_TRY(table<Elf64_Sym>(s.sh_offset, s.sh_size / sizeof(Elf64_Sym), "symbol table"));
      if (s.sh_link >= sections_.size() || sections_[s.sh_link].sh_type != SHT_STRTAB)
        return invalid("the symbol table has no names");
      const Elf64_Shdr& strings = sections_[s.sh_link];
      const std::string_view text(reinterpret_cast<const char*>(object_.data()) + strings.sh_offset, strings.sh_size);
      for (const Elf64_Sym& symbol : symbols_) {
        if (symbol.st_name > text.size()) return invalid("a symbol's name lies outside of the object");
        const std::string_view rest = text.substr(symbol.st_name);
        const size_t end = rest.find('\0');
        if (end == std::string_view::npos && !rest.empty()) return invalid("a symbol's name does not end");
        names_.emplace_back(rest.substr(0, end));
      }
    }
    return {};
  }

  static Kind kind_of(const Elf64_Shdr& s) {
    return s.sh_flags & SHF_EXECINSTR ? kCode : s.sh_flags & SHF_WRITE ? kWritable : kReadOnly;
  }

  /// Gives every section that is loaded its place: code first (with the stubs behind it), then constants, then data.
  Status lay_out() {
    places_.assign(sections_.size(), kNowhere);
    uint64_t end = 0;
    for (int kind = 0; kind < kKinds; ++kind) {
      begin_[kind] = end;
      for (size_t i = 0; i < sections_.size(); ++i) {
        const Elf64_Shdr& s = sections_[i];
        if (!(s.sh_flags & SHF_ALLOC) || kind_of(s) != kind) continue;
        if (s.sh_flags & SHF_TLS) return unsupported("the object has thread-local data");
        const uint64_t alignment = std::max<uint64_t>(s.sh_addralign, 1);
        if (alignment > kPage || (alignment & (alignment - 1)) != 0 || s.sh_size > kMaxImage)
          return invalid("a section's alignment or size is not possible");
        places_[i] = align_to(end, alignment);
        end = places_[i] + s.sh_size;
        if (end > kMaxImage) return invalid("the object is too large");
      }
      if (kind == kCode) {
        stubs_ = align_to(end, kStub);
        end = stubs_ + kStub * symbols_.size();
        if (end > kMaxImage) return invalid("the object is too large");
      }
      end = align_to(end, kPage);
    }
    begin_[kKinds] = end;
    image_ = INGOT_TRY(Image::create(std::max(end, kPage)));
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& s = sections_[i];
      if (places_[i] == kNowhere || s.sh_type == SHT_NOBITS || s.sh_size == 0) continue;
      std::memcpy(image_->data() + places_[i], object_.data() + s.sh_offset, s.sh_size);
    }
    return {};
  }

  Result<uint64_t> address_of(size_t symbol) {
    const Elf64_Sym& s = symbols_[symbol];
    if (s.st_shndx == SHN_UNDEF) {
      if (void* p = host_symbol(names_[symbol])) return reinterpret_cast<uint64_t>(p);
      return unsupported(fmt::format("the object calls '{}', which code from a file may not", names_[symbol]));
    }
    if (s.st_shndx >= sections_.size() || places_[s.st_shndx] == kNowhere || s.st_value > sections_[s.st_shndx].sh_size)
      return invalid(fmt::format("symbol '{}' lies outside of the object", names_[symbol]));
    return reinterpret_cast<uint64_t>(image_->data()) + places_[s.st_shndx] + s.st_value;
  }

  /// A jump to `target` within reach, and the address itself behind it.
  uint64_t stub_for(size_t symbol, uint64_t target) {
    uint8_t* stub = image_->data() + stubs_ + kStub * symbol;
    static constexpr uint8_t kJump[8] = {0xff, 0x25, 2, 0, 0, 0, 0x66, 0x90};
    std::memcpy(stub, kJump, sizeof kJump);
    std::memcpy(stub + sizeof kJump, &target, sizeof target);
    return reinterpret_cast<uint64_t>(stub);
  }

  Status relocate(const Elf64_Shdr& list) {
    if (list.sh_info >= sections_.size()) return invalid("relocations of a section that does not exist");
    if (places_[list.sh_info] == kNowhere) return {};  // notes and the like are not loaded
    const Elf64_Shdr& target = sections_[list.sh_info];
    if (target.sh_type == SHT_NOBITS) return invalid("relocations of a section without contents");
    for (const Elf64_Rela& r :
         INGOT_TRY(table<Elf64_Rela>(list.sh_offset, list.sh_size / sizeof(Elf64_Rela), "relocations"))) {
      const uint32_t type = ELF64_R_TYPE(r.r_info);
      const uint64_t symbol = ELF64_R_SYM(r.r_info);
      const uint64_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
      if (symbol >= symbols_.size() || target.sh_size < width || r.r_offset > target.sh_size - width)
        return invalid("a relocation lies outside of its section");
      INGOT_TRY(apply(type, symbol, r.r_addend, image_->data() + places_[list.sh_info] + r.r_offset));
    }
    return {};
  }

  Status apply(uint32_t type, size_t symbol, int64_t addend, uint8_t* at) {
    uint64_t target = INGOT_TRY(address_of(symbol));
    if (type == R_X86_64_NONE) return {};
    if (type == R_X86_64_PLT32 && symbols_[symbol].st_shndx == SHN_UNDEF) target = stub_for(symbol, target);
    else if (type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX)
      target = stub_for(symbol, target) + 8;
    const uint64_t absolute = target + static_cast<uint64_t>(addend),
                   relative = absolute - reinterpret_cast<uint64_t>(at);
    switch (type) {
      case R_X86_64_64: std::memcpy(at, &absolute, 8); return {};
      case R_X86_64_PC64: std::memcpy(at, &relative, 8); return {};
      case R_X86_64_PC32:
      case R_X86_64_PLT32:
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX: {
        const auto near = static_cast<int32_t>(relative);
        if (static_cast<uint64_t>(static_cast<int64_t>(near)) != relative)
          return invalid(fmt::format("'{}' is too far away", names_[symbol]));
        std::memcpy(at, &near, 4);
        return {};
      }
      default: return unsupported(fmt::format("relocation of type {}", type));
    }
  }

  Status protect() {
    static constexpr int kRights[kKinds] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
    for (int kind = 0; kind < kKinds; ++kind) {
      const uint64_t bytes = begin_[kind + 1] - begin_[kind];
      if (bytes > 0 && ::mprotect(image_->data() + begin_[kind], bytes, kRights[kind]) != 0)
        return make_error(ErrorKind::Io, fmt::format("code cannot be made executable: {}", std::strerror(errno)));
    }
    return {};
  }

  static constexpr uint64_t kNowhere = UINT64_MAX;
  std::span<const uint8_t> object_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<std::string> names_;
  std::vector<uint64_t> places_;  // of each section in the image
  uint64_t begin_[kKinds + 1] = {}, stubs_ = 0;
  std::shared_ptr<Image> image_;
};

}  // namespace

Result<CpuCode> load_object(std::span<const uint8_t> object, const std::string& function) {
  auto code = Linker(object).link(function);
  if (!code) return std::move(code).error().add(fmt::format("while linking the CPU object of {}", function));
  return code;
}

CpuLoader object_loader() {
  return [](const KernelInfo& kernel) -> Result<CpuCode> {
    std::string reason = "has no CPU code";
    for (const KernelBinary& b : kernel.binaries) {
      if (!is_cpu_target(b.target)) continue;
      const std::string missing = missing_cpu_features(b.code);
      if (missing.empty()) return load_object(b.code, kernel.name);
      reason = fmt::format("was compiled for a CPU with {}, which this one lacks", missing);
    }
    return unsupported(fmt::format("kernel {} {}", kernel.name, reason));
  };
}

}  // namespace ingot::runtime
