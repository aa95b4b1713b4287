// Writing .ingot files; the format is described in engine_file.h.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/engine_file.h"
#include "runtime/engine_generated.h"
#include "runtime/engine_layout.h"

namespace ingot::runtime {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

template <class T, class F>
auto list(FlatBufferBuilder& b, const std::vector<T>& items, F make) {
  std::vector<decltype(make(items[0]))> out;
  for (const T& item : items) out.push_back(make(item));
  return b.CreateVector(out);
}

uint8_t byte(DType type) { return static_cast<uint8_t>(type); }

/// Appends the program's code and records where weights and code go.
class ProgramWriter {
 public:
  explicit ProgramWriter(const Program& program) : p_(program) {}

  std::vector<uint8_t> code;
  uint64_t weight_bytes = 0;

  flatbuffers::DetachedBuffer write() {
    const auto shapes = p_.shapes.lines;
    std::vector<fb::ShapeLine> lines;
    for (const ShapeLine& l : shapes) lines.emplace_back(static_cast<uint8_t>(l.op), l.a, l.b, l.c, l.immediate);
    const auto target = b_.CreateString(p_.target), model = b_.CreateString(p_.model_name),
               options = b_.CreateString(p_.options);
    const auto symbols = list(b_, p_.symbols, [&](const SymbolInfo& s) {
      return fb::CreateSymbol(b_, b_.CreateString(s.name), s.low, s.high);
    });
    const auto line_vector = b_.CreateVectorOfStructs(lines);
    const auto inputs = bindings(p_.inputs), outputs = bindings(p_.outputs);
    const auto constants = list(b_, p_.constants, [&](const ConstantInfo& c) { return constant(c); });
    const auto slots = list(b_, p_.slots, [](const ArenaSlot& s) { return s.bytes; });
    const auto values = list(b_, p_.values, [&](const ValueInfo& v) {
      return fb::CreateValue(b_, static_cast<uint8_t>(v.place), v.index, byte(v.type), v.bytes,
                             b_.CreateString(v.name));
    });
    const auto kernels = list(b_, p_.kernels, [&](const KernelInfo& k) { return kernel(k); });
    const auto instructions = list(b_, p_.instructions, [&](const Instruction& i) {
      const std::vector<int32_t> grid(i.grid.begin(), i.grid.end());
      return fb::CreateInstruction(b_, static_cast<uint8_t>(i.kind), i.kernel, b_.CreateVector(i.args),
                                   b_.CreateVector(i.dims), b_.CreateVector(grid), i.bytes, i.flops);
    });
    const auto requirements = list(b_, p_.requirements, [&](const Program::Requirement& r) {
      return fb::CreateRequirement(b_, r.condition, b_.CreateString(r.message));
    });
    b_.Finish(fb::CreateProgram(b_, target, model, options, symbols, line_vector, inputs, outputs, constants, slots,
                                values, kernels, instructions, requirements));
    return b_.Release();
  }

 private:
  Offset<flatbuffers::Vector<Offset<fb::Binding>>> bindings(const std::vector<Binding>& items) {
    return list(b_, items, [&](const Binding& x) {
      return fb::CreateBinding(b_, b_.CreateString(x.name), byte(x.type), b_.CreateVector(x.dims),
                               b_.CreateVector(x.symbols));
    });
  }
  Offset<fb::Constant> constant(const ConstantInfo& c) {
    const uint64_t offset = weight_bytes, size = c.data ? c.data->bytes() : 0;
    weight_bytes = align_section(weight_bytes + std::max<uint64_t>(size, 1));
    return fb::CreateConstant(b_, b_.CreateString(c.name), byte(c.type), b_.CreateVector(c.dims), offset, size);
  }
  Offset<fb::Kernel> kernel(const KernelInfo& k) {
    const auto binaries = list(b_, k.binaries, [&](const KernelBinary& x) {
      code.resize(align_section(code.size()));
      const uint64_t offset = code.size();
      code.insert(code.end(), x.code.begin(), x.code.end());
      return fb::CreateBinary(b_, b_.CreateString(x.target), offset, x.code.size());
    });
    const auto name = b_.CreateString(k.name), summary = b_.CreateString(k.summary), source = b_.CreateString(k.source);
    return fb::CreateKernel(b_, name, summary, b_.CreateVectorOfStrings(k.nodes), source, binaries, k.threads,
                            k.shared_bytes, k.scratch_bytes);
  }

  const Program& p_;
  FlatBufferBuilder b_;
};

/// A file that keeps the checksum of the section being written.
class SectionFile {
 public:
  explicit SectionFile(const std::string& path) : out_(path, std::ios::binary) { XXH3_128bits_reset(&state_); }
  void append(const void* data, uint64_t size) {
    if (size == 0) return;
    out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    XXH3_128bits_update(&state_, data, size);
    position_ += size;
  }
  void pad_to(uint64_t position) {
    static constexpr char kZeros[kSectionAlignment] = {};
    INGOT_CHECK(position >= position_ && position - position_ <= kSectionAlignment, "engine file: sections overlap");
    append(kZeros, position - position_);
  }
  void start(SectionRow& row, SectionKind kind) {
    pad_to(align_section(position_));
    row = {};
    row.kind = kind;
    row.offset = position_;
    XXH3_128bits_reset(&state_);
  }
  void finish(SectionRow& row) {
    const XXH128_hash_t h = XXH3_128bits_digest(&state_);
    row.size = position_ - row.offset;
    row.hash[0] = h.high64;
    row.hash[1] = h.low64;
  }
  uint64_t position() const { return position_; }
  bool write_at_start(const void* data, uint64_t size) {
    out_.seekp(0);
    out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    out_.close();
    return out_.good();
  }
  bool good() const { return out_.good(); }

 private:
  std::ofstream out_;
  XXH3_state_t state_;
  uint64_t position_ = 0;
};

constexpr uint32_t kSections = 4;

bool write_file(const Program& program, const std::string& notes, const std::string& path) {
  ProgramWriter writer(program);
  const auto buffer = writer.write();
  SectionFile file(path);
  struct {
    EngineHeader header;
    SectionRow rows[kSections];
  } front = {};
  file.append(&front, sizeof front);
  SectionRow* row = front.rows;
  const auto simple = [&](SectionKind kind, const void* data, uint64_t size) {
    file.start(*row, kind);
    file.append(data, size);
    file.finish(*row++);
  };
  simple(SectionKind::Program, buffer.data(), buffer.size());
  simple(SectionKind::Code, writer.code.data(), writer.code.size());
  simple(SectionKind::Notes, notes.data(), notes.size());
  file.start(*row, SectionKind::Weights);
  for (const ConstantInfo& c : program.constants) {
    const uint64_t end = align_section(file.position() + std::max<uint64_t>(c.data ? c.data->bytes() : 0, 1));
    if (c.data) file.append(c.data->data(), c.data->bytes());
    file.pad_to(end);
  }
  file.finish(*row);
  std::memcpy(front.header.magic, kEngineMagic, sizeof kEngineMagic);
  front.header.version = kEngineFileVersion;
  front.header.sections = kSections;
  front.header.file_bytes = file.position();
  const XXH128_hash_t h = XXH3_128bits(front.rows, sizeof front.rows);
  front.header.table_hash[0] = h.high64;
  front.header.table_hash[1] = h.low64;
  return file.good() && file.write_at_start(&front, sizeof front);
}

}  // namespace

Status save_engine(const Program& program, const std::string& notes, const std::string& path) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  std::error_code ec;
  if (!write_file(program, notes, temporary)) {
    std::filesystem::remove(temporary, ec);
    return make_error(ErrorKind::Io,
                      fmt::format("{} cannot be written (folder missing, no permission, or disk full)", path));
  }
  std::filesystem::rename(temporary, path, ec);
  if (ec) {
    const std::string why = ec.message();
    std::filesystem::remove(temporary, ec);
    return make_error(ErrorKind::Io, fmt::format("{}: {}", path, why));
  }
  return {};
}

}  // namespace ingot::runtime
