// Reading .ingot files: everything is checked before it is used, because the file may come from anyone.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>

#include "compiler/support/hash.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/engine_file.h"
#include "runtime/engine_generated.h"
#include "runtime/engine_layout.h"

namespace ingot::runtime {
namespace {

/// A file in memory, read-only.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path) {
    auto file = std::make_shared<MappedFile>();
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      return make_error(errno == ENOENT ? ErrorKind::NotFound : ErrorKind::Io,
                        fmt::format("{}: {}", path, std::strerror(errno)));
    struct stat info;
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd);
      return make_error(ErrorKind::Io, path + " is not a file");
    }
    file->size_ = static_cast<size_t>(info.st_size);
    if (file->size_ > 0) {
      void* p = ::mmap(nullptr, file->size_, PROT_READ, MAP_PRIVATE, fd, 0);
      ::close(fd);
      if (p == MAP_FAILED) return make_error(ErrorKind::Io, fmt::format("{}: {}", path, std::strerror(errno)));
      file->data_ = static_cast<const uint8_t*>(p);
    } else {
      ::close(fd);
    }
    return std::shared_ptr<const MappedFile>(std::move(file));
  }
  ~MappedFile() {
    if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
  }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

struct Section {
  const uint8_t* data = nullptr;
  uint64_t size = 0;
};
struct Sections {
  std::vector<Section> programs;
  Section code, notes, folding, weights;
};

Status read_header(const MappedFile& file, EngineHeader& header) {
  if (file.size() < sizeof(EngineHeader) || std::memcmp(file.data(), kEngineMagic, sizeof kEngineMagic) != 0)
    return invalid("not an .ingot file");
  std::memcpy(&header, file.data(), sizeof header);
  if (header.version != kEngineFileVersion)
    return unsupported(
        fmt::format("the file has format version {}; this build reads version {}: compile the model again",
                    header.version, kEngineFileVersion));
  if (header.file_bytes != file.size())
    return invalid(fmt::format("the file is {}: it has {} bytes and should have {}",
                               file.size() < header.file_bytes ? "cut off" : "too long", file.size(),
                               header.file_bytes));
  if (header.sections > 64 || sizeof header + header.sections * sizeof(SectionRow) > file.size())
    return invalid("the section table is damaged");
  const Hash128 h = hash_bytes(file.data() + sizeof header, header.sections * sizeof(SectionRow));
  if (h.high != header.table_hash[0] || h.low != header.table_hash[1])
    return invalid("the section table is damaged (its checksum differs)");
  return {};
}

Result<Sections> read_sections(const MappedFile& file, const LoadOptions& options) {
  EngineHeader header;
  INGOT_TRY(read_header(file, header));
  Sections sections;
  for (uint32_t i = 0; i < header.sections; ++i) {
    SectionRow row;
    std::memcpy(&row, file.data() + sizeof header + i * sizeof row, sizeof row);
    static constexpr const char* kNames[] = {"unknown", "program", "code", "notes", "weights", "folding"};
    const auto kind = static_cast<uint32_t>(row.kind);
    const char* name = kNames[kind <= 5 ? kind : 0];
    if (row.offset > file.size() || row.size > file.size() - row.offset || row.offset % kSectionAlignment != 0)
      return invalid(fmt::format("the {} section lies outside of the file", name));
    const Section section{file.data() + row.offset, row.size};
    if (row.kind != SectionKind::Weights || options.check_weights) {
      const Hash128 h = hash_bytes(section.data, section.size);
      if (h.high != row.hash[0] || h.low != row.hash[1])
        return invalid(fmt::format("the {} section is damaged (its checksum differs)", name));
    }
    switch (row.kind) {
      case SectionKind::Program: sections.programs.push_back(section); break;
      case SectionKind::Code: sections.code = section; break;
      case SectionKind::Notes: sections.notes = section; break;
      case SectionKind::Folding: sections.folding = section; break;
      case SectionKind::Weights: sections.weights = section; break;
    }
  }
  if (sections.programs.empty()) return invalid("the file has no program");
  return sections;
}

std::string text(const flatbuffers::String* s) { return s ? s->str() : ""; }

template <class V>
auto each(const V* vector) {
  std::vector<std::decay_t<decltype((*vector)[0])>> out;
  if (vector) out.assign(vector->begin(), vector->end());
  return out;
}

/// What was compressed, or nothing when it is not `size` bytes. The size is believed only as far as zlib can compress.
std::vector<uint8_t> expand(const uint8_t* data, uint64_t stored, uint64_t size) {
  constexpr uint64_t kMostRatio = 1100;
  if (size > stored * kMostRatio) return {};
  std::vector<uint8_t> out(size);
  uLongf made = size;
  if (uncompress(out.data(), &made, data, stored) != Z_OK || made != size) return {};
  return out;
}

/// True when the device might run one of the targets.
bool may_suit(const Device& device, const std::string& targets) {
  Program p;
  p.target = targets;
  for (const std::string& t : targets_of(p))
    if (device.preference(t) > 0) return true;
  return false;
}

/// Builds a Program from the verified FlatBuffer; numbers are checked by Program::verify afterwards.
class ProgramReader {
 public:
  ProgramReader(const Sections& sections, std::shared_ptr<const MappedFile> file, const LoadOptions& options)
      : s_(sections), file_(std::move(file)), options_(options) {}
  bool host_code_dropped = false;

  Result<Program> read(const fb::Program& in) {
    Program p;
    p.target = text(in.target());
    p.model_name = text(in.model_name());
    p.options = text(in.options());
    for (const fb::Symbol* s : each(in.symbols()))
      p.symbols.push_back({s->name()->str(), s->low(), s->high(), s->input(), s->element()});
    for (const fb::ShapeLine* l : each(in.shapes()))
      p.shapes.lines.push_back({static_cast<ShapeOp>(l->op()), l->a(), l->b(), l->c(), l->immediate()});
    p.inputs = INGOT_TRY(bindings(in.inputs()));
    p.outputs = INGOT_TRY(bindings(in.outputs()));
    for (const fb::Constant* c : each(in.constants())) p.constants.push_back(INGOT_TRY(constant(*c)));
    for (int32_t slot : each(in.slots())) p.slots.push_back({slot});
    for (const fb::Value* v : each(in.values())) {
      if (v->place() > static_cast<uint8_t>(Place::Arena)) return invalid("a value has an unknown place");
      p.values.push_back(
          {static_cast<Place>(v->place()), v->index(), INGOT_TRY(type(v->type())), v->bytes(), v->name()->str(), v->part_of()});
    }
    for (const fb::Kernel* k : each(in.kernels())) p.kernels.push_back(INGOT_TRY(kernel(*k)));
    for (const fb::Instruction* i : each(in.instructions())) p.instructions.push_back(INGOT_TRY(instruction(*i)));
    for (const fb::Requirement* r : each(in.requirements()))
      p.requirements.push_back({r->condition(), text(r->message())});
    for (const fb::Program* part : each(in.parts())) {
      if (each(part->parts()).size() > 0) return invalid("a part has parts itself");
      p.parts.push_back(std::make_shared<const Program>(INGOT_TRY(read(*part))));
    }
    for (const fb::Script* s : each(in.scripts())) p.scripts.push_back(INGOT_TRY(script(*s)));
    return p;
  }

 private:
  static Result<DType> type(uint8_t number) {
    if (number > static_cast<uint8_t>(DType::String)) return invalid(fmt::format("unknown element type {}", number));
    return static_cast<DType>(number);
  }
  Result<Script> script(const fb::Script& s) {
    Script out;
    out.values = s.values();
    out.inputs = each(s.inputs());
    out.outputs = each(s.outputs());
    const auto values = each(s.constant_values());
    const auto constants = each(s.constants());
    if (values.size() != constants.size()) return invalid("a script's constants and their values differ in number");
    for (size_t i = 0; i < values.size(); ++i)
      out.constants.emplace_back(values[i], INGOT_TRY(constant(*constants[i])).data);
    for (const fb::ScriptStep* x : each(s.steps())) {
      ScriptStep step;
      if (x->kind() > static_cast<uint8_t>(ScriptStep::Kind::Loop)) return invalid("a script has an unknown step");
      step.kind = static_cast<ScriptStep::Kind>(x->kind());
      step.part = x->part();
      step.states = x->states();
      step.scripts = each(x->scripts());
      step.inputs = each(x->inputs());
      step.outputs = each(x->outputs());
      for (const fb::Collected* c : each(x->collected()))
        step.collected.emplace_back(INGOT_TRY(type(c->type())), each(c->dims()));
      step.name = text(x->name());
      out.steps.push_back(std::move(step));
    }
    return out;
  }
  Result<std::vector<Binding>> bindings(const flatbuffers::Vector<flatbuffers::Offset<fb::Binding>>* list) {
    std::vector<Binding> out;
    for (const fb::Binding* b : each(list))
      out.push_back({b->name()->str(), INGOT_TRY(type(b->type())), each(b->dims()), each(b->symbols())});
    return out;
  }
  Result<ConstantInfo> constant(const fb::Constant& c) {
    ConstantInfo out{c.name()->str(), INGOT_TRY(type(c.type())), each(c.dims()), nullptr};
    const int64_t count = INGOT_TRY(checked_count(out.dims, size_of(out.type)));
    if (c.offset() > s_.weights.size || c.size() > s_.weights.size - c.offset() ||
        c.offset() % kSectionAlignment != 0 || c.size() != static_cast<uint64_t>(count) * size_of(out.type))
      return invalid(fmt::format("constant '{}' lies outside of the weights section", out.name));
    out.data = std::make_shared<Tensor>(out.type, out.dims, file_, s_.weights.data + c.offset());
    return out;
  }
  Result<KernelInfo> kernel(const fb::Kernel& k) {
    KernelInfo out;
    out.name = k.name()->str();
    out.summary = text(k.summary());
    for (const flatbuffers::String* n : each(k.nodes())) out.nodes.push_back(n->str());
    out.source = text(k.source());
    out.threads = k.threads();
    out.shared_bytes = k.shared_bytes();
    out.scratch_bytes = k.scratch_bytes();
    out.waits_for_inputs = k.waits_for_inputs();
    out.tensor_cost = std::clamp(k.tensor_cost(), 0, 64);
    for (const fb::Binary* b : each(k.binaries())) {
      const uint64_t stored = b->stored() ? b->stored() : b->size();
      if (b->offset() > s_.code.size || stored > s_.code.size - b->offset())
        return invalid(fmt::format("the code of kernel {} lies outside of the code section", out.name));
      if (is_cpu_target(b->target()->str()) && !options_.trust_host_code) {
        host_code_dropped = true;
        continue;
      }
      const uint8_t* code = s_.code.data + b->offset();
      auto bytes = b->stored() ? expand(code, stored, b->size()) : std::vector<uint8_t>(code, code + stored);
      if (bytes.size() != b->size()) return invalid(fmt::format("the code of kernel {} cannot be expanded", out.name));
      out.binaries.push_back({b->target()->str(), std::move(bytes)});
    }
    return out;
  }
  static Result<Instruction> instruction(const fb::Instruction& i) {
    Instruction out;
    if (i.kind() > static_cast<uint8_t>(Instruction::Kind::Copy)) return invalid("an instruction has an unknown kind");
    out.kind = static_cast<Instruction::Kind>(i.kind());
    out.kernel = i.kernel();
    out.args = each(i.args());
    out.dims = each(i.dims());
    const auto grid = each(i.grid());
    if (grid.size() != 3) return invalid("an instruction's grid does not have three numbers");
    std::copy(grid.begin(), grid.end(), out.grid.begin());
    out.bytes = i.bytes();
    out.flops = i.flops();
    out.first_written = i.first_written();
    out.lane = i.lane();
    out.waits = each(i.waits());
    out.part_bytes = i.part_bytes();
    out.early_behind = i.early_behind();
    for (const fb::BoxMap* m : each(i.boxes()))
      out.boxes.push_back({m->argument(), INGOT_TRY(type(m->type())), m->offset(), each(m->extents()), each(m->strides()), each(m->box()), each(m->low()), each(m->high()),
                           each(m->steps()), m->clipped()});
    return out;
  }

  const Sections& s_;
  std::shared_ptr<const MappedFile> file_;
  const LoadOptions& options_;
};

Result<EngineFile> read_engine(std::shared_ptr<const MappedFile> file, const LoadOptions& options) {
  const Sections sections = INGOT_TRY(read_sections(*file, options));
  const auto text_of = [](const Section& s) { return std::string(reinterpret_cast<const char*>(s.data), s.size); };
  EngineFile out;
  ProgramReader reader(sections, file, options);
  for (const Section& section : sections.programs) {
    flatbuffers::Verifier verifier(section.data, section.size, 16, 10'000'000);
    if (!fb::VerifyProgramBuffer(verifier)) return invalid("the program section is not a valid program");
    const fb::Program& stored = *fb::GetProgram(section.data);
    if (options.device && !may_suit(*options.device, text(stored.target()))) {
      out.left_out.push_back(text(stored.target()));
      continue;
    }
    auto program = std::make_shared<Program>(INGOT_TRY(reader.read(stored)));
    INGOT_TRY(program->verify());
    out.programs.push_back(std::move(program));
  }
  out.notes = text_of(sections.notes);
  out.folding = text_of(sections.folding);
  out.host_code_dropped = reader.host_code_dropped;
  return out;
}

}  // namespace

Result<EngineFile> load_engine(const std::string& path, const LoadOptions& options) {
  auto file = INGOT_TRY(MappedFile::open(path));
  auto engine = read_engine(std::move(file), options);
  if (!engine) return std::move(engine).error().add("while loading " + path);
  return engine;
}

}  // namespace ingot::runtime
