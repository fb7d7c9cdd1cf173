// One row a form of name, as the clients' own sources build it (versions of 2025-07 to 2026-08).
// Temporary names give the same hash as the final one. Every pattern starts at a path component,
// because a client may be pointed at a directory below the mount, and ends at the end of the path.
//
// The order matters: a row comes before the more general ones that would match its names too.
#include "cache/naming/profiles.h"

namespace prefixfs {
namespace {

// LMCache writes hashes as integers: without leading zeros, and with a sign where Python's own hash
// is used.
#define LMCACHE_HASH "(?P<hash>-?[0-9a-f]{1,128})"

constexpr Profile kProfiles[] = {
    // vLLM fs tier, llm-d: MODEL_DIGEST_rRANK/HHH/HH_gGROUP/HASH.bin, temporary HASH.bin_N.tmp
    {"vllm-fs", R"((?:^|/)(?P<model>[^/]+)_r(?P<rank>[0-9]+)/[0-9a-f]{3}/[0-9a-f]{2}_g[0-9]+/)"
                R"((?P<hash>[0-9a-f]{16,128})(?:\.bin)?(?:_[0-9]+\.tmp)?$)"},
    // VAST VUA: SHA1/ with two files and a link, written as SHA1.tmp/
    {"vua", R"((?:^|/)(?P<hash>[0-9a-f]{40})(?:\.tmp)?/(?:_[a-z]+\.safetensors|parent)$)"},
    // vLLM example connector: HASH/LAYER.safetensors, temporary beside it
    {"vllm-example",
     R"((?:^|/)(?P<hash>[0-9a-f]{32,128})/(?:[^/]*\.safetensors[^/]*|\.?tmp[^/]*)$)"},
    // SGLang HiCache file: HASH[.COMPONENT]_MODEL[_RANK_SIZE[_PPSIZE_PPRANK]].bin, temporary adds
    // .tmp.PID.TID.UUID
    {"sglang-file",
     R"((?:^|/)(?P<hash>[0-9a-f]{64})(?:\.[^/]+?)?_(?P<model>[^/]+?))"
     R"((?:_(?P<rank>[0-9]+)_[0-9]+(?:_[0-9]+_[0-9]+)?)?\.bin(?:\.tmp\.[0-9]+\.[0-9]+\.[0-9a-f]+)?$)"},
    // SGLang HiCache NIXL: HH/HASH[.COMPONENT]_MODEL[_RANK_SIZE[_PPSIZE_PPRANK]][_k|_v]
    {"sglang-nixl", R"((?:^|/)[0-9a-f]{2}/(?P<hash>[0-9a-f]{64})(?:\.[^/]+?)?_(?P<model>[^/]+?))"
                    R"((?:_(?P<rank>[0-9]+)_[0-9]+(?:_[0-9]+_[0-9]+)?)?(?:_[kv])?$)"},
    // LMCache GDS and Weka: HH/HH/QUOTED-KEY.kvcache.safetensors, .metadata beside it, temporaries
    // add .tmpXXXXXXXX
    {"lmcache-gds",
     R"((?:^|/)[0-9a-f]{2}/[0-9a-f]{2}/(?P<model>[^/@]+?)(?:%40|@)[0-9]+(?:%40|@)(?P<rank>[0-9]+)(?:%40|@))" LMCACHE_HASH
     R"((?:(?:%40|@)[^/]*)?\.(?:kvcache\.safetensors|weka1)(?:\.metadata|\.tmp[0-9A-Za-z]+)*$)",
     ModelText::kPercent},
    // LMCache local disk: MODEL@WORLD@RANK@HASH@DTYPE.pt
    {"lmcache-disk",
     R"((?:^|/)(?P<model>[^/@]+)@[0-9]+@(?P<rank>[0-9]+)@)" LMCACHE_HASH R"((?:@[^/]*)?\.pt$)"},
    // LMCache fs://: the same key, .data; its temporary, KEY.tmp, is one name for all writers
    {"lmcache-fs",
     R"((?:^|/)(?P<model>[^/@]+)@[0-9]+@(?P<rank>[0-9]+)@)" LMCACHE_HASH
     R"((?:@[^/]*?)?(?:\.data|\.tmp|\.data\.tmp)$)",
     ModelText::kSep},
    // LMCache fs L2 and native fs: MODEL@KVRANK[@GROUP]@HASH[@SALT].data
    {"lmcache-fs",
     R"((?:^|/)(?P<model>[^/@]+)@(?:0x)?(?P<rank>[0-9a-f]{8})(?:@[0-9a-f]{1,4})?@)"
     R"((?P<hash>[0-9a-f]{8,128})(?:@[^/]*?)?(?:\.data|\.tmp|\.data\.tmp)$)",
     ModelText::kSep, RankText::kPacked},
    // LMCache NIXL, dynamic: MODEL_KVRANK[_GROUP]_HASH[_SALT].bin
    {"lmcache-nixl",
     R"((?:^|/)(?P<model>[^/]+?)_(?P<rank>[0-9a-f]{8})(?:_[0-9a-f]{1,4})?_)"
     R"((?P<hash>[0-9a-f]{16,128})(?:_[^/]*)?\.bin$)",
     ModelText::kPlain, RankText::kPacked},
    // Mooncake: C/K/KEY with one-character directories, KEY as its user builds it (SGLang:
    // HASH_RANK_k; others:
    // MODEL@WORLD@RANK@HASH@DTYPE, MODEL_HASH)
    {"mooncake",
     R"((?:^|/)[0-9a-p]/[0-9a-p]/(?P<hash>[0-9a-f]{16,128})(?:_(?P<rank>[0-9]+))?(?:_[^/]*)?$)"},
    {"mooncake",
     R"((?:^|/)[0-9a-p]/[0-9a-p]/(?P<model>[^/@]+)@(?:[0-9]+@(?P<rank>[0-9]+)@|(?:[^/]*@)?))"
     R"((?P<hash>[0-9a-f]{16,128})(?:@[^/]*)?$)"},
    {"mooncake",
     R"((?:^|/)[0-9a-p]/[0-9a-p]/(?P<model>[^/@]+?)_(?P<hash>[0-9a-f]{16,128})(?:_[^/]*)?$)"},
};

#undef LMCACHE_HASH

constexpr PolicyPattern kPolicies[] = {
    // LMCache NIXL, static pool: N files, open for good and overwritten in place.
    {false, PathPolicy::kPosix, R"((?:^|/)obj_[0-9]+_[0-9A-Za-z-]+\.bin$)"},
    // Dynamo KVBM: the whole disk tier in one preallocated file.
    {false, PathPolicy::kPosix, R"((?:^|/)dynamo-kvbm-disk-cache-[^/]+$)"},
    // TensorRT-LLM: slots, written again without truncation.
    {false, PathPolicy::kPosix, R"((?:^|/)block_[0-9]+_pool_[0-9]+\.bin$)"},
    // Mooncake: many blocks a bucket with an index beside it, and the preallocated file of its
    // offset mode.
    {false, PathPolicy::kPosix, R"((?:^|/)[^/]+\.bucket(?:\.meta)?(?:\.tmp[^/]*)?$)"},
    {false, PathPolicy::kPosix, R"((?:^|/)[0-9]+\.meta(?:\.tmp[^/]*)?$)"},
    {false, PathPolicy::kPosix, R"((?:^|/)kv_cache\.data$)"},
    // vLLM: the layout's description, and the probe whether O_DIRECT works.
    {false, PathPolicy::kPosix, R"((?:^|/)config\.json(?:_[0-9]+\.tmp|\.tmp[^/]*)?$)"},
    {false, PathPolicy::kPosix, R"((?:^|/)\.o_direct_probe_[^/]*$)"},
    // A fan-out HHH/HH has a directory for every few blocks, and each may go when it is empty.
    {true, PathPolicy::kBlock, R"((?:^|/)[0-9a-f]{3}/[0-9a-f]{2}$)"},
    // SGLang NIXL makes 256 of these at start, LMCache GDS two levels of them, and neither makes
    // them again.
    {true, PathPolicy::kKeep, R"((?:^|/)[0-9a-f]{2}$)"},
};

}  // namespace

std::span<const Profile> BuiltinProfiles() { return kProfiles; }
std::span<const PolicyPattern> BuiltinPolicies() { return kPolicies; }

}  // namespace prefixfs
