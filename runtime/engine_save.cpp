// Writing .ingot files; the format is described in engine_file.h.
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

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

/// The bytes compressed, or nothing where that saves less than a tenth.
std::vector<uint8_t> compress(const std::vector<uint8_t>& bytes) {
  uLongf size = compressBound(bytes.size());
  std::vector<uint8_t> out(size);
  const bool ok = compress2(out.data(), &size, bytes.data(), bytes.size(), Z_DEFAULT_COMPRESSION) == Z_OK;
  if (!ok || size > bytes.size() - bytes.size() / 10) return {};
  out.resize(size);
  return out;
}

/// Gives byte strings places in a section; equal ones get the same place.
class Pool {
 public:
  struct Item {
    const void* data;
    uint64_t size, offset;
  };
  uint64_t place(const void* data, uint64_t size) {
    const XXH128_hash_t h = XXH3_128bits(data, size);
    const auto [it, inserted] = known_.try_emplace(std::tuple(size, h.high64, h.low64), end_);
    if (inserted) {
      items_.push_back({data, size, end_});
      end_ = align_section(end_ + std::max<uint64_t>(size, 1));
    }
    return it->second;
  }
  /// Likewise of bytes that the pool keeps until it is written.
  uint64_t place_copy(std::vector<uint8_t> bytes) {
    kept_.push_back(std::move(bytes));
    return place(kept_.back().data(), kept_.back().size());
  }
  const std::vector<Item>& items() const { return items_; }

 private:
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, uint64_t> known_;
  std::vector<Item> items_;
  std::deque<std::vector<uint8_t>> kept_;
  uint64_t end_ = 0;
};

/// One program; its code and weights go to pools that all programs of the file share.
class ProgramWriter {
 public:
  ProgramWriter(Pool& code, Pool& weights) : code_(code), weights_(weights) {}

  flatbuffers::DetachedBuffer write(const Program& p) {
    b_.Finish(program(p));
    return b_.Release();
  }

 private:
  Offset<fb::Program> program(const Program& p_) {
    std::vector<fb::ShapeLine> lines;
    for (const ShapeLine& l : p_.shapes.lines)
      lines.emplace_back(static_cast<uint8_t>(l.op), l.a, l.b, l.c, l.immediate);
    const auto target = b_.CreateString(p_.target), model = b_.CreateString(p_.model_name),
               options = b_.CreateString(p_.options);
    const auto symbols = list(b_, p_.symbols, [&](const SymbolInfo& s) {
      return fb::CreateSymbol(b_, b_.CreateString(s.name), s.low, s.high, s.input, s.element);
    });
    const auto line_vector = b_.CreateVectorOfStructs(lines);
    const auto inputs = bindings(p_.inputs), outputs = bindings(p_.outputs);
    const auto constants = list(b_, p_.constants, [&](const ConstantInfo& c) { return constant(c); });
    const auto slots = list(b_, p_.slots, [](const ArenaSlot& s) { return s.bytes; });
    const auto values = list(b_, p_.values, [&](const ValueInfo& v) {
      return fb::CreateValue(b_, static_cast<uint8_t>(v.place), v.index, byte(v.type), v.bytes,
                             b_.CreateString(v.name), v.part_of);
    });
    const auto kernels = list(b_, p_.kernels, [&](const KernelInfo& k) { return kernel(k); });
    const auto instructions = list(b_, p_.instructions, [&](const Instruction& i) {
      const std::vector<int32_t> grid(i.grid.begin(), i.grid.end());
      const auto boxes = list(b_, i.boxes, [&](const BoxMap& m) {
        return fb::CreateBoxMap(b_, m.argument, byte(m.type), m.offset, b_.CreateVector(m.extents),
                                b_.CreateVector(m.strides), b_.CreateVector(m.box), b_.CreateVector(m.low),
                                b_.CreateVector(m.high), b_.CreateVector(m.steps), m.clipped);
      });
      return fb::CreateInstruction(b_, static_cast<uint8_t>(i.kind), i.kernel, b_.CreateVector(i.args),
                                   b_.CreateVector(i.dims), b_.CreateVector(grid), i.bytes, i.flops, i.first_written,
                                   i.lane, b_.CreateVector(i.waits), boxes, i.part_bytes, i.early_behind);
    });
    const auto requirements = list(b_, p_.requirements, [&](const Program::Requirement& r) {
      return fb::CreateRequirement(b_, r.condition, b_.CreateString(r.message));
    });
    const auto parts = list(b_, p_.parts, [&](const std::shared_ptr<const Program>& part) { return program(*part); });
    const auto scripts = list(b_, p_.scripts, [&](const Script& s) { return script(s); });
    return fb::CreateProgram(b_, target, model, options, symbols, line_vector, inputs, outputs, constants, slots,
                             values, kernels, instructions, requirements, parts, scripts);
  }
  Offset<fb::Script> script(const Script& s) {
    std::vector<int32_t> values;
    std::vector<Offset<fb::Constant>> constants;
    for (const auto& [value, tensor] : s.constants) {
      values.push_back(value);
      constants.push_back(constant({"", tensor->type(), tensor->dims(), tensor}));
    }
    const auto steps = list(b_, s.steps, [&](const ScriptStep& x) {
      const auto collected = list(b_, x.collected, [&](const auto& c) {
        return fb::CreateCollected(b_, byte(c.first), b_.CreateVector(c.second));
      });
      return fb::CreateScriptStep(b_, static_cast<uint8_t>(x.kind), x.part, x.states, b_.CreateVector(x.scripts),
                                  b_.CreateVector(x.inputs), b_.CreateVector(x.outputs), collected,
                                  b_.CreateString(x.name));
    });
    const auto inputs = b_.CreateVector(s.inputs), outputs = b_.CreateVector(s.outputs);
    return fb::CreateScript(b_, s.values, inputs, outputs, b_.CreateVector(values), b_.CreateVector(constants), steps);
  }
  Offset<flatbuffers::Vector<Offset<fb::Binding>>> bindings(const std::vector<Binding>& items) {
    return list(b_, items, [&](const Binding& x) {
      return fb::CreateBinding(b_, b_.CreateString(x.name), byte(x.type), b_.CreateVector(x.dims),
                               b_.CreateVector(x.symbols));
    });
  }
  Offset<fb::Constant> constant(const ConstantInfo& c) {
    const uint64_t size = c.data ? c.data->bytes() : 0;
    const uint64_t offset = weights_.place(c.data ? c.data->data() : nullptr, size);
    return fb::CreateConstant(b_, b_.CreateString(c.name), byte(c.type), b_.CreateVector(c.dims), offset, size);
  }
  Offset<fb::Kernel> kernel(const KernelInfo& k) {
    const auto binaries = list(b_, k.binaries, [&](const KernelBinary& x) {
      std::vector<uint8_t> small = compress(x.code);
      const uint64_t stored = small.size();
      const uint64_t offset = stored ? code_.place_copy(std::move(small)) : code_.place(x.code.data(), x.code.size());
      return fb::CreateBinary(b_, b_.CreateString(x.target), offset, x.code.size(), stored);
    });
    const auto name = b_.CreateString(k.name), summary = b_.CreateString(k.summary), source = b_.CreateString(k.source);
    return fb::CreateKernel(b_, name, summary, b_.CreateVectorOfStrings(k.nodes), source, binaries, k.threads,
                            k.shared_bytes, k.scratch_bytes, k.waits_for_inputs, k.tensor_cost);
  }

  Pool &code_, &weights_;
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

/// Sections one after the other; the header and the table come last, into the room left for them at the start.
class EngineWriter {
 public:
  EngineWriter(const std::string& path, size_t sections) : file_(path), rows_(sections) {
    const std::vector<uint8_t> room(front_bytes());
    file_.append(room.data(), room.size());
  }
  void section(SectionKind kind, const void* data, uint64_t size) {
    file_.start(rows_[done_], kind);
    file_.append(data, size);
    file_.finish(rows_[done_++]);
  }
  void section(SectionKind kind, const Pool& pool) {
    file_.start(rows_[done_], kind);
    const uint64_t start = file_.position();
    for (const Pool::Item& item : pool.items()) {
      file_.pad_to(start + item.offset);
      if (item.size) file_.append(item.data, item.size);
    }
    file_.finish(rows_[done_++]);
  }
  bool finish() {
    INGOT_CHECK(done_ == rows_.size(), "an engine file's table has as many rows as sections");
    EngineHeader header = {};
    std::memcpy(header.magic, kEngineMagic, sizeof kEngineMagic);
    header.version = kEngineFileVersion;
    header.sections = static_cast<uint32_t>(rows_.size());
    header.file_bytes = file_.position();
    const XXH128_hash_t h = XXH3_128bits(rows_.data(), rows_.size() * sizeof(SectionRow));
    header.table_hash[0] = h.high64;
    header.table_hash[1] = h.low64;
    std::vector<uint8_t> front(front_bytes());
    std::memcpy(front.data(), &header, sizeof header);
    std::memcpy(front.data() + sizeof header, rows_.data(), rows_.size() * sizeof(SectionRow));
    return file_.good() && file_.write_at_start(front.data(), front.size());
  }

 private:
  size_t front_bytes() const { return sizeof(EngineHeader) + rows_.size() * sizeof(SectionRow); }
  SectionFile file_;
  std::vector<SectionRow> rows_;
  size_t done_ = 0;
};

bool write_file(const EngineFile& contents, const std::string& path) {
  Pool code, weights;
  EngineWriter file(path, contents.programs.size() + 4);
  for (const auto& program : contents.programs) {
    const auto buffer = ProgramWriter(code, weights).write(*program);
    file.section(SectionKind::Program, buffer.data(), buffer.size());
  }
  file.section(SectionKind::Code, code);
  file.section(SectionKind::Notes, contents.notes.data(), contents.notes.size());
  file.section(SectionKind::Folding, contents.folding.data(), contents.folding.size());
  file.section(SectionKind::Weights, weights);
  return file.finish();
}

}  // namespace

Status save_engine(const EngineFile& file, const std::string& path) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  std::error_code ec;
  if (!write_file(file, temporary)) {
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
