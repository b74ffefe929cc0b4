// The tables of default rules, as measured on shared memory and across nodes (docs/performance.md).
#include "runtime/selection/default_rules.hpp"

namespace tutti {
namespace {

// On one node. Up to 8 ranks read from each other in one round, which wins nearly everywhere, since one
// signal serves all readers. With more ranks domains come first; short vectors take one leader, since
// messages count there. Without domains those items are not legal, and skipped. Between two ranks a rooted
// vector goes best in halves that overlap. Nobody has measured more than 8 ranks with a CPU each: those choices
// are predicted by the model of cache lines (docs/data/many_core_allreduce.csv). Up to 48 bytes travel with
// a leader's flag; beyond that each member of a domain carries its share. Above 1 KiB a domain of one rank
// takes that of the level above. Short gathers of any kind go by trees over all ranks: there a line that goes
// one level up twice costs more than a far one.
std::string_view node_rules(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return "one_shot:-64k@-2;one_shot:-16k@3-8;hierarchical(leaders=1):-48@9-;hierarchical:-1k@9-;"
             "hierarchical(mates=1):-8k@9-;hierarchical(across=2,mates=1):-128k@9-;"
             "hierarchical(across=1,mates=1):0-@9-;recursive_multiplying:-128@9-;"
             "circulant:-32k@9-;recursive_doubling:-4k;circulant:0-@65-;rabenseifner:0-@65-;two_shot";
    case Collective::reduce_scatter:
      return "circulant:-512@49-;hierarchical:0-@9-;circulant:0-@9-;direct";
    case Collective::allgather:
      return "pat:-1m@-2;pat:-4k@9-;hierarchical:0-@9-;bruck(radix=4):-16k@9-;bruck(radix=8):-64k@9-;"
             "circulant:0-@129-;direct";
    case Collective::broadcast:
      return "double_binary_tree(segment=64k):16k-1m@-2;double_binary_tree(segment=256k):1m-4m@-2;"
             "linear:0-@-8;hierarchical(leaders=1,across=1):-1k@9-;hierarchical(across=1):0-@9-;"
             "knomial(radix=8):-2k;linear:-64k@9-128;binomial:-64k;circulant(segment=64k)";
    // The later items of a size are for ops that do not commute.
    case Collective::reduce:
      return "linear:-4k@-2;double_binary_tree(segments=1):-32k@-2;direct:-64k@-2;linear:-64k@-8;"
             "double_binary_tree(segment=64k):-2m@-2;double_binary_tree(segment=256k):-8m@-2;linear:0-@-2;"
             "direct:0-@-8;knomial:-512;hierarchical:-2k@9-;hierarchical(across=1):0-@9-;"
             "linear:-512;rabenseifner;linear:-32k;direct";
    case Collective::gather:
      return "linear:0-@-8;binomial:-256k;linear";
    case Collective::scatter:
      return "linear:0-@-8;hierarchical:-64k@9-;binomial:-64k;linear";
    case Collective::alltoall:
      return "bruck:-64@49-;hierarchical:-32k@9-;bruck:-4k@9-;linear:0-@-8;linear:-64k;pairwise";
    case Collective::barrier:
      return "dissemination(radix=16):0-@-8;hierarchical;dissemination";
    case Collective::scan:
    case Collective::exscan:
      return "chain(segments=1):-2k@-2;recursive_doubling:-64k;chain(segment=64k):-4m;"
             "recursive_doubling:0-@-2;chain(segment=64k):-8m;chain(segment=256k)";
    default:
      return "";
  }
}

// Before those of a node, for small groups over several sockets: one reader on the other socket slows all, so that each
// byte crosses once. Predicted by the same model. Two and three ranks have nobody to share with.
std::string_view node_sockets_rules(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return "one_shot:-48@4-8;hierarchical:-32k@4-8";
    case Collective::reduce:
      return "linear:-256@4-8;hierarchical:-64k@4-8";
    case Collective::reduce_scatter:
      return "hierarchical:-4k@4-8";
    case Collective::gather:
      return "hierarchical:-8k@4-8";
    case Collective::scatter:
      return "hierarchical:-512@4-8";
    case Collective::alltoall:
      return "hierarchical:-4k@4-8";
    default:
      return "";
  }
}

// Before those of a node where domains have more than 16 ranks. Each rank would wait for the shares of all its mates, so
// a short vector goes through clusters of 8 to one leader. Predicted by the same model.
std::string_view node_large_domains_rules(Collective collective) {
  return collective == Collective::allreduce
             ? "hierarchical(leaders=1):-128@17-;hierarchical(leaders=1):-512@49-;rabenseifner:513-8k@129-"
             : "";
}

// On one node with more ranks than CPUs (oversubscribed). There the work of all ranks together counts, and
// the number of times that each must be scheduled, not the longest path. One round, to one rank and back or
// straight to all, wins over trees, which take several. From the size where additions count, one rank that
// adds for all wins over all ranks doing the same additions. Large vectors go by domains where there are any.
std::string_view node_shared_cpus_rules(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return "one_shot:-64k@-2;one_shot:-16k@3-4;one_shot:-2k@5-8;knomial(radix=8):-64k@5-8;"
             "knomial(radix=64):-64k@9-;hierarchical(across=1):0-@9-;rabenseifner:0-@65-;two_shot";
    case Collective::reduce_scatter:
      return "hierarchical:0-@9-;circulant:0-@129-;direct";
    case Collective::allgather:
      return "pat:-1m@-2;direct:-1k@9-128;hierarchical:0-@9-;bruck:-1k@9-;circulant:0-@129-;direct";
    case Collective::broadcast:
      return "double_binary_tree(segment=64k):16k-1m@-2;double_binary_tree(segment=256k):1m-4m@-2;"
             "linear:0-@-8;linear:-1m@9-;hierarchical(across=1):0-@9-;linear:0-@9-255;binomial:-64k;"
             "circulant(segment=64k)";
    case Collective::reduce:
      return "linear:-128k@-8;double_binary_tree(segment=256k):0-@-8;linear:0-@-8;linear:-8k@9-128;"
             "knomial(radix=8):-1m@9-;hierarchical(across=1):0-@9-;knomial(radix=8):0-@9-;binomial:-32k;"
             "linear:-32k;rabenseifner;direct";
    case Collective::gather:
    case Collective::scatter:
      return "linear:0-@-128;hierarchical:-64k;binomial:-64k;linear";
    case Collective::alltoall:
      return "linear:-64k@-128;linear:0-@-8;hierarchical:-4k;bruck:-4k;linear:-64k;pairwise";
    case Collective::barrier:
      return "dissemination(radix=64):0-@-64;hierarchical;dissemination";
    case Collective::scan:
      return "recursive_doubling:-512;chain(segments=1):-128k;chain(segment=64k):-8m;chain(segment=256k)";
    case Collective::exscan:
      return "chain(segments=1):-128k;recursive_doubling:8m-@-4;chain(segment=64k):-8m;chain(segment=256k)";
    default:
      return node_rules(collective);
  }
}

// Across nodes. By nodes wherever one holds several ranks: the fewest bytes leave a node, and all its ranks
// share them. Between nodes of one rank a message costs as much as hundreds of KiB in memory, so rounds count
// for longer. Large vectors take rows of minimal volume, but not circulant ones, whose partners are far
// apart. Pieces are short where there is only one exchange to overlap; among more ranks each piece is one
// more message to another peer.
std::string_view network_rules(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return "hierarchical(leaders=1):-512;hierarchical:-128k;hierarchical(across=1,segment=64k):0-@-32;"
             "hierarchical(across=2,segment=64k);recursive_doubling:-128k@-2;recursive_doubling:-32k@-8;"
             "recursive_doubling:-8k;two_shot(segment=128k):0-@-2;two_shot(segment=256k):0-@-8;"
             "rabenseifner:-1m;ring;two_shot";
    case Collective::reduce_scatter:
      return "hierarchical;direct:0-@-16;ring:1m-;direct";
    case Collective::allgather:
      return "hierarchical(across=2):-4k;hierarchical;bruck:-4k;direct:0-@-16;ring";
    case Collective::broadcast:
      return "hierarchical(leaders=1):-16k;hierarchical(across=1):0-@-4;hierarchical(across=2);"
             "binomial:-64k;linear:0-@-2;scatter_allgather:0-@-8;circulant(segment=64k)";
    case Collective::reduce:
      return "hierarchical(leaders=1):-16k;hierarchical;binomial:-16k;linear:-16k;direct:0-@-16;"
             "rabenseifner;direct";
    case Collective::gather:
    case Collective::scatter:
      return "hierarchical:-64k;binomial:-16k;linear";
    case Collective::alltoall:
      return "hierarchical:-32k;bruck:-1k@8-;linear:0-@-8;linear:-64k;pairwise";
    case Collective::barrier:
      return "hierarchical;dissemination";
    case Collective::scan:
    case Collective::exscan:
      return "recursive_doubling:-64k;chain(segment=64k)";
    default:
      return "";
  }
}

// Across nodes with more ranks than CPUs: containers of one machine, or oversubscribed nodes. One leader per
// node wins as long as messages cost more than bytes, which is longer here. The row that sends the least wins
// even with more rounds.
std::string_view network_shared_cpus_rules(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return "hierarchical(leaders=1):-256k@-32;hierarchical(across=1,segment=128k):-2m@-32;"
             "hierarchical(leaders=1,across=1,segment=256k):0-@-32;hierarchical(leaders=1):-512;"
             "hierarchical:-128k;hierarchical(across=2,segment=64k);recursive_doubling:-64k@-3;"
             "reduce_broadcast:-256k@4-16;recursive_doubling:-8k;two_shot(segment=64k):0-@-2;"
             "two_shot(segment=256k):0-@-8;rabenseifner:-1m;ring;two_shot";
    case Collective::reduce_scatter:
      return "hierarchical(leaders=1):-64k;hierarchical;bine:-512k@-8;direct:0-@-16;ring:1m-;direct";
    case Collective::allgather:
      return "hierarchical(leaders=1):-256k;hierarchical:-1m;hierarchical(leaders=1,segment=256k);"
             "bine:-512k@-8;bruck:-4k;direct:0-@-16;ring";
    case Collective::broadcast:
      return "hierarchical(leaders=1):-256k;hierarchical(leaders=1,segment=256k):0-@-4;"
             "hierarchical(segment=256k):0-@-8;hierarchical(across=2);linear:-64k@-8;binomial:-64k;"
             "linear:0-@-2;scatter_allgather:-1m@-8;double_binary_tree(segment=256k):0-@-8;"
             "circulant(segment=64k)";
    case Collective::reduce:
      return "hierarchical(leaders=1):-1m;hierarchical(leaders=1,segment=64k):0-@-4;"
             "hierarchical(segment=256k):0-@-8;hierarchical;linear:-256k@-8;binomial:-16k;linear:-16k;"
             "direct:0-@-16;rabenseifner;direct";
    case Collective::gather:
      return "hierarchical:-64k;linear:0-@-8;binomial:-16k;linear";
    case Collective::scatter:
      return "hierarchical:-1m;binomial:-16k;linear";
    case Collective::alltoall:
      return "hierarchical(leaders=1):-128k;bruck(radix=2):-32k@-8;bruck:-1k@9-;linear:0-@-8;linear:-64k;"
             "pairwise";
    case Collective::barrier:
      return "hierarchical;dissemination(radix=2):0-@-8;dissemination";
    case Collective::scan:
    case Collective::exscan:
      return "chain(segments=1):-256k@-16;chain(segment=256k):0-@-16;recursive_doubling:-64k;"
             "chain(segment=64k)";
    default:
      return network_rules(collective);
  }
}

}  // namespace

std::string_view default_rules(Collective collective, DefaultSet set) {
  switch (set) {
    case DefaultSet::node:
      return node_rules(collective);
    case DefaultSet::node_sockets:
      return node_sockets_rules(collective);
    case DefaultSet::node_large_domains:
      return node_large_domains_rules(collective);
    case DefaultSet::node_shared_cpus:
      return node_shared_cpus_rules(collective);
    case DefaultSet::network:
      return network_rules(collective);
    case DefaultSet::network_shared_cpus:
      return network_shared_cpus_rules(collective);
  }
  return {};
}

std::string_view to_string(DefaultSet set) {
  switch (set) {
    case DefaultSet::node:
      return to_string(Reach::node);
    case DefaultSet::node_sockets:
      return "on one node, across sockets";
    case DefaultSet::node_large_domains:
      return "on one node, with many ranks in a domain";
    case DefaultSet::node_shared_cpus:
      return "on one node with more ranks than CPUs";
    case DefaultSet::network:
      return to_string(Reach::network);
    case DefaultSet::network_shared_cpus:
      return "across nodes with more ranks than CPUs";
  }
  return "?";
}

std::string_view to_string(Reach reach) { return reach == Reach::node ? "on one node" : "across nodes"; }

// Between two ranks one exchange of everything through the control blocks costs as many bytes as an exchange
// of halves and one of sums, and a synchronisation less. In shared buffers (direct form) each rank writes its
// half of the sum to both at once. Up to 8 KiB buffers are not announced.
std::string_view shared_buffer_rules(Collective collective) {
  return collective == Collective::allreduce ? "two_shot:8193-64k@-2" : "";
}

}  // namespace tutti
