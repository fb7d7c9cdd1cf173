#include "cache/index/page_check.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "cache/index/tables.h"

namespace prefixfs {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kDataVersion = 1;
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint16_t kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMeta = 0x08;
constexpr uint16_t kBigData = 0x01, kSubTable = 0x02;
constexpr uint16_t kIntegerKeys = 0x08;  // the free list's table flags
constexpr int kMaxDepth = 32;            // LMDB's own limit

struct PageHead {
  uint64_t number;
  uint16_t pad;
  uint16_t flags;
  uint16_t
      lower;  // end of the node offsets; for overflow pages, lower and upper are one page count
  uint16_t upper;  // start of the nodes
};
static_assert(sizeof(PageHead) == 16);

struct NodeHead {
  uint16_t low, high;  // of the value's size, or of the child's page number
  uint16_t flags;      // in branches, the page number's top bits
  uint16_t key_bytes;
};
static_assert(sizeof(NodeHead) == 8);

struct Table {
  uint32_t pad;
  uint16_t flags;
  uint16_t depth;
  uint64_t branches, leaves, overflows, entries, root;
};
static_assert(sizeof(Table) == 48);

struct Meta {
  uint32_t magic, version;
  uint64_t address, map_bytes;
  Table free_list, main;
  uint64_t last_page, txn;
};
static_assert(sizeof(Meta) == 136);

struct Node {
  uint16_t flags = 0;
  uint64_t child = 0;  // branches
  std::string_view key, value;
};

std::string At(uint64_t page) { return "page " + std::to_string(page) + ": "; }
Status Bad(std::string what) { return {Code::kCorrupt, "index: " + std::move(what)}; }

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// One tree being walked, and what its pages must be like.
struct Walk {
  enum class Kind { kFreeList, kMain, kPlain } kind = Kind::kPlain;
  int depth = 0;
};

class PageCheck {
 public:
  explicit PageCheck(std::span<const uint8_t> file)
      : file_(reinterpret_cast<const char*>(file.data()), file.size()) {}
  Status Run();

 private:
  Status ReadMetas();
  // What the setting meta_key::kTxn says in the snapshot of `meta`.
  Result<uint64_t> TxnSetting(const Meta& meta) const;
  Status CheckTable(const Table& table, Walk::Kind kind);
  Status CheckTree(uint64_t page, const Walk& walk, int level, std::string_view low,
                   const std::string* high);
  Status CheckLeafNode(uint64_t page, const Walk& walk, const Node& node);
  Status CheckFreeRecord(std::string_view key, std::string_view value);
  Status Use(uint64_t page, uint64_t count);

  // The page if it lies in the file and says that it is this one.
  Result<const char*> Page(uint64_t page, uint16_t flags) const;
  Result<std::vector<Node>> Nodes(uint64_t page, const Walk& walk, bool branch) const;
  Result<Node> ReadNode(uint64_t page, const char* at, size_t room, bool branch) const;
  Result<std::string_view> BigValue(uint64_t page, size_t bytes) const;
  static bool Less(const Walk& walk, std::string_view a, std::string_view b);

  std::string_view file_;
  size_t page_bytes_ = 0;
  uint64_t pages_ = 0;  // that the file holds
  Meta meta_{}, other_{};
  std::vector<bool> used_;
  // The free list may name pages beyond the file's end.
  std::unordered_set<uint64_t> free_beyond_;
};

Result<const char*> PageCheck::Page(uint64_t page, uint16_t flags) const {
  if (page < 2 || page >= pages_) return Bad(At(page) + "outside of the file");
  const char* at = file_.data() + page * page_bytes_;
  const auto head = Load<PageHead>(at);
  if (head.number != page) return Bad(At(page) + "wrong number");
  if (head.flags != flags) return Bad(At(page) + "wrong type");
  return at;
}

Status PageCheck::ReadMetas() {
  // Both metas lie one page apart and say how large a page is.
  if (file_.size() < sizeof(PageHead) + sizeof(Meta)) return Bad("shorter than its head");
  page_bytes_ = Load<Meta>(file_.data() + sizeof(PageHead)).free_list.pad;
  if (page_bytes_ < 512 || page_bytes_ > 32768 || (page_bytes_ & (page_bytes_ - 1)) != 0) {
    return Bad("no possible page size");
  }
  pages_ = file_.size() / page_bytes_;
  if (pages_ < 2) return Bad("shorter than its metas");
  Meta metas[2];
  for (uint64_t i = 0; i < 2; ++i) {
    const char* at = file_.data() + i * page_bytes_;
    const auto head = Load<PageHead>(at);
    metas[i] = Load<Meta>(at + sizeof(PageHead));
    const Meta& meta = metas[i];
    if (head.flags != kMeta || meta.magic != kMagic || meta.version != kDataVersion ||
        meta.free_list.pad != page_bytes_ || meta.free_list.flags != kIntegerKeys ||
        meta.main.flags != 0 || meta.last_page < 1 || meta.last_page >= (uint64_t{1} << 40)) {
      return Bad("meta " + std::to_string(i) + " is damaged");
    }
  }
  // Transactions use the metas by turns.
  const bool first_is_new = metas[0].txn > metas[1].txn;
  meta_ = metas[first_is_new ? 0 : 1];
  other_ = metas[first_is_new ? 1 : 0];
  if (meta_.txn == 0) return {Code::kNotFound, "nothing was ever committed"};
  if (metas[0].txn % 2 != 0 || metas[1].txn % 2 != 1 || meta_.txn - other_.txn != 1) {
    return Bad("the metas do not fit each other");
  }
  return Ok();
}

Result<Node> PageCheck::ReadNode(uint64_t page, const char* at, size_t room, bool branch) const {
  const auto head = Load<NodeHead>(at);
  Node node;
  const size_t key_end = sizeof(NodeHead) + head.key_bytes;
  if (key_end > room) return Bad(At(page) + "a key runs out of it");
  node.key = {at + sizeof(NodeHead), head.key_bytes};
  if (branch) {
    node.child = head.low | uint64_t{head.high} << 16 | uint64_t{head.flags} << 32;
    return node;
  }
  node.flags = head.flags;
  const size_t bytes = head.low | size_t{head.high} << 16;
  if (head.flags == kBigData) {
    if (key_end + sizeof(uint64_t) > room) return Bad(At(page) + "a value runs out of it");
    node.child = Load<uint64_t>(at + key_end);
    node.value = PFS_TRY(BigValue(node.child, bytes));
    return node;
  }
  if (head.flags != 0 && head.flags != kSubTable) return Bad(At(page) + "an unknown kind of node");
  if (key_end + bytes > room) return Bad(At(page) + "a value runs out of it");
  node.value = {at + key_end, bytes};
  return node;
}

Result<std::string_view> PageCheck::BigValue(uint64_t page, size_t bytes) const {
  const char* at = PFS_TRY(Page(page, kOverflow));
  const auto count = Load<uint32_t>(at + offsetof(PageHead, lower));
  if (count == 0 || count > pages_ - page) return Bad(At(page) + "runs out of the file");
  if (sizeof(PageHead) + bytes > count * page_bytes_) return Bad(At(page) + "value too large");
  return std::string_view(at + sizeof(PageHead), bytes);
}

bool PageCheck::Less(const Walk& walk, std::string_view a, std::string_view b) {
  if (walk.kind == Walk::Kind::kFreeList)
    return Load<uint64_t>(a.data()) < Load<uint64_t>(b.data());
  return a < b;
}

// The nodes of a page, in order and apart from each other.
Result<std::vector<Node>> PageCheck::Nodes(uint64_t page, const Walk& walk, bool branch) const {
  const char* at = PFS_TRY(Page(page, branch ? kBranch : kLeaf));
  const auto head = Load<PageHead>(at);
  if (head.lower < sizeof(PageHead) || head.lower % 2 != 0 || head.lower > head.upper ||
      head.upper % 2 != 0 || head.upper > page_bytes_) {
    return Bad(At(page) + "bounds do not fit");
  }
  const size_t count = (head.lower - sizeof(PageHead)) / 2;
  // LMDB asserts two in a branch, but for the free list, which it changes while it uses it.
  const size_t least = branch && walk.kind != Walk::Kind::kFreeList ? 2 : 1;
  if (count < least) return Bad(At(page) + "too few nodes");
  std::vector<Node> nodes;
  nodes.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto offset = Load<uint16_t>(at + sizeof(PageHead) + 2 * i);
    if (offset < head.upper || offset % 2 != 0 || offset + sizeof(NodeHead) > page_bytes_) {
      return Bad(At(page) + "a node lies outside");
    }
    nodes.push_back(PFS_TRY(ReadNode(page, at + offset, page_bytes_ - offset, branch)));
    const std::string_view key = nodes.back().key;
    if (branch && i == 0) continue;  // the first key of a branch is never looked at
    if (walk.kind == Walk::Kind::kFreeList && key.size() != 8) return Bad(At(page) + "odd key");
    const bool ordered = i == 0 || (branch && i == 1) || Less(walk, nodes[i - 1].key, key);
    if (key.empty() || !ordered) return Bad(At(page) + "keys out of order");
  }
  return nodes;
}

Status PageCheck::Use(uint64_t page, uint64_t count) {
  for (uint64_t i = page; i < page + count; ++i) {
    if (i > meta_.last_page) return Bad(At(i) + "behind the last page");
    if (i >= used_.size()) {
      if (!free_beyond_.insert(i).second) return Bad(At(i) + "has two uses");
      continue;
    }
    if (used_[i]) return Bad(At(i) + "has two uses");
    used_[i] = true;
  }
  return Ok();
}

// Keys of the tree lie from `low` on and before `*high`.
Status PageCheck::CheckTree(uint64_t page, const Walk& walk, int level, std::string_view low,
                            const std::string* high) {
  const bool branch = level < walk.depth;
  const std::vector<Node> nodes = PFS_TRY(Nodes(page, walk, branch));
  PFS_TRY(Use(page, 1));
  const std::string_view first = nodes[branch ? std::min<size_t>(1, nodes.size() - 1) : 0].key;
  const bool compare_first = !branch || nodes.size() > 1;
  if (compare_first && !low.empty() && Less(walk, first, low)) return Bad(At(page) + "key too low");
  if (compare_first && high != nullptr && !Less(walk, nodes.back().key, *high)) {
    return Bad(At(page) + "key too high");
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!branch) {
      PFS_TRY(CheckLeafNode(page, walk, nodes[i]));
      continue;
    }
    const std::string next = i + 1 < nodes.size() ? std::string(nodes[i + 1].key) : std::string();
    PFS_TRY(CheckTree(nodes[i].child, walk, level + 1, i == 0 ? low : nodes[i].key,
                      i + 1 < nodes.size() ? &next : high));
  }
  return Ok();
}

Status PageCheck::CheckLeafNode(uint64_t page, const Walk& walk, const Node& node) {
  if (node.flags == kBigData) {
    const char* at = PFS_TRY(Page(node.child, kOverflow));
    PFS_TRY(Use(node.child, Load<uint32_t>(at + offsetof(PageHead, lower))));
  }
  if (walk.kind == Walk::Kind::kFreeList) return CheckFreeRecord(node.key, node.value);
  if (node.flags != kSubTable) return Ok();
  if (walk.kind != Walk::Kind::kMain || node.value.size() != sizeof(Table)) {
    return Bad(At(page) + "a table where none can be");
  }
  const auto table = Load<Table>(node.value.data());
  if (table.flags != 0 || table.pad != 0) return Bad(At(page) + "a table of unknown kind");
  return CheckTable(table, Walk::Kind::kPlain);
}

// A count, then that many page numbers, falling.
Status PageCheck::CheckFreeRecord(std::string_view key, std::string_view value) {
  const auto txn = Load<uint64_t>(key.data());
  if (txn == 0 || txn > meta_.txn) return Bad("free list: of no transaction");
  if (value.size() < 8 || value.size() % 8 != 0) return Bad("free list: odd length");
  const auto count = Load<uint64_t>(value.data());
  if (count > value.size() / 8 - 1) return Bad("free list: count too large");
  uint64_t before = kNoPage;
  for (uint64_t i = 1; i <= count; ++i) {
    const auto page = Load<uint64_t>(value.data() + 8 * i);
    if (page < 2 || page >= before) return Bad("free list: out of order");
    PFS_TRY(Use(page, 1));
    before = page;
  }
  return Ok();
}

Status PageCheck::CheckTable(const Table& table, Walk::Kind kind) {
  if (table.root == kNoPage) {
    return table.depth == 0 && table.entries == 0 ? Ok() : Bad("an empty table has entries");
  }
  if (table.depth == 0 || table.depth > kMaxDepth) return Bad("a table of impossible depth");
  return CheckTree(table.root, Walk{kind, table.depth}, 1, {}, nullptr);
}

Result<uint64_t> PageCheck::TxnSetting(const Meta& meta) const {
  uint64_t page = meta.main.root;
  if (meta.main.depth == 0 || meta.main.depth > kMaxDepth) return Bad("main table is damaged");
  for (int level = 1;; ++level) {
    const bool branch = level < meta.main.depth;
    const auto nodes = PFS_TRY(Nodes(page, Walk{Walk::Kind::kMain, meta.main.depth}, branch));
    const Node* at = nullptr;
    for (const Node& node : nodes) {
      if ((branch && &node == &nodes[0]) || node.key <= meta_key::kTxn) at = &node;
    }
    if (branch) {
      page = at->child;
      continue;
    }
    if (at == nullptr || at->key != meta_key::kTxn) return Bad("setting txn is missing");
    const auto value = Unseal(at->key, at->value);
    if (!value || value->size() != 8) return Bad("setting txn is damaged");
    return NumberAt(*value, 0);
  }
}

Status PageCheck::Run() {
  PFS_TRY(ReadMetas());
  // A meta of another transaction than its settings was tampered with. LMDB keeps the pages of
  // both.
  for (const Meta* meta : {&meta_, &other_}) {
    if (meta->txn == 0) {
      if (meta->main.root != kNoPage) return Bad("a meta of no transaction has entries");
    } else if (PFS_TRY(TxnSetting(*meta)) != meta->txn) {
      return Bad("a meta is of another transaction");
    }
  }
  used_.assign(std::min(pages_, meta_.last_page + 1), false);
  used_[0] = used_[1] = true;
  PFS_TRY(CheckTable(meta_.free_list, Walk::Kind::kFreeList));
  PFS_TRY(CheckTable(meta_.main, Walk::Kind::kMain));
  // A file may be shorter than its last page says only by pages on the free list.
  const uint64_t beyond = meta_.last_page + 1 - used_.size();
  return free_beyond_.size() == beyond ? Ok() : Bad("pages are missing at the end of the file");
}

}  // namespace

Status CheckPages(std::span<const uint8_t> file) { return PageCheck(file).Run(); }

}  // namespace prefixfs
