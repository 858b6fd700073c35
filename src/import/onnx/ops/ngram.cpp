// TfIdfVectorizer over integers.
#include <algorithm>

#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

// The pool's n-grams of one length: their elements, and where each stands in the pool.
constexpr int64_t kMostSkips = 1024;      // each is a few nodes of the graph
constexpr int64_t kMostPlaces = 1 << 26;  // 256 MiB; a small file can name a far column

}  // namespace

// Counts, for each n-gram of the pool, where it occurs in the row with up to max_skip_count elements left out between
// its own, and puts count, weight or their product into the gram's column.
Status import_tf_idf_vectorizer(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  if (x.rank() != 1 && x.rank() != 2)
    return n.fail(Code::rank_mismatch, "the input has {} axes but must have 1 or 2", x.rank());
  if (n.has_attribute("pool_strings")) return n.fail(Code::unsupported_feature, "n-grams of strings are not supported");
  std::string_view mode = n.text("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    return n.fail(Code::attribute_invalid, "mode is '{}' but must be TF, IDF or TFIDF", mode);
  std::vector<int64_t> pool = n.integers("pool_int64s"), starts = n.integers("ngram_counts"),
                       columns = n.integers("ngram_indexes");
  std::vector<double> weights = n.reals("weights");
  int64_t shortest = n.integer("min_gram_length", 1), longest = n.integer("max_gram_length", 1),
          skips = n.integer("max_skip_count", 0);
  TESSERA_TRY(n.b.status());
  if (shortest < 1 || longest < shortest || skips < 0 || skips > kMostSkips)
    return n.fail(Code::attribute_invalid, "gram lengths {} to {} with {} skips, of which there may be up to {}",
                  shortest, longest, skips, kMostSkips);
  if (columns.empty() || std::any_of(columns.begin(), columns.end(), [](int64_t c) { return c < 0 || c > (1 << 24); }))
    return n.fail(Code::attribute_invalid, "ngram_indexes must be columns");
  int64_t width = *std::max_element(columns.begin(), columns.end()) + 1;

  X rows = x.rank() == 1 ? unsqueeze(x, {0}) : x;
  rows = cast(rows, DType::i64);
  Dim length = rows.dim(1);
  X y;
  int64_t number = 0;
  for (size_t k = 0; k < starts.size(); ++k) {
    int64_t size = static_cast<int64_t>(k) + 1;
    int64_t begin = starts[k], end = k + 1 < starts.size() ? starts[k + 1] : static_cast<int64_t>(pool.size());
    if (begin < 0 || end < begin || end > static_cast<int64_t>(pool.size()) || (end - begin) % size != 0)
      return n.fail(Code::attribute_invalid, "ngram_counts places the {}-grams at [{}, {}) of {} elements", size, begin,
                    end, pool.size());
    int64_t count = (end - begin) / size;
    int64_t first = number;
    number += count;
    if (number > static_cast<int64_t>(columns.size()))
      return n.fail(Code::attribute_invalid, "{} n-grams but {} ngram_indexes", number, columns.size());
    if (count == 0 || size < shortest || size > longest) continue;
    X grams = reshape(n.b.integers(std::span<const int64_t>(pool).subspan(static_cast<size_t>(begin),
                                                                          static_cast<size_t>(end - begin))),
                      {count, 1, size});
    X found;  // [rows, count]
    for (int64_t skip = 0; skip <= (size == 1 ? 0 : skips); ++skip) {
      Dim places = tessera::max(Dim(0), length - (size - 1) * (skip + 1));
      X windows = n.b.view(rows, ir::window_view(rows.shape(), 1, places, 1, size, skip + 1));  // [rows, places, size]
      X same = reduce_min(equal(unsqueeze(windows, {1}), grams), {-1});  // [rows, count, places, 1]
      X hits = squeeze(sum(cast(same, DType::f32), {2}), {2, 3});
      found = found ? found + hits : hits;
    }
    TESSERA_TRY(n.b.status());
    // Each gram's count goes to its column: a product with a 0-1 matrix [width, count], weighted where asked.
    if (width * count > kMostPlaces)
      return n.fail(Code::out_of_memory, "{} n-grams in {} columns take a matrix of more than {} elements", count,
                    width, kMostPlaces);
    TESSERA_ASSIGN(Tensor place, Tensor::make(DType::f32, {width, count}));
    for (int64_t g = 0; g < count; ++g) {
      size_t at = static_cast<size_t>(first + g);
      double weight = mode != "TF" && at < weights.size() ? weights[at] : 1.0;
      place.as<float>()[columns[at] * count + g] = static_cast<float>(weight);
    }
    if (mode == "IDF") found = min(found, like(found, 1));
    X part = dot(found, n.b.constant(std::move(place)));
    y = y ? y + part : part;
  }
  if (!y) y = broadcast(n.b.scalar(DType::f32, 0), {rows.dim(0), width});
  n.out(x.rank() == 1 ? squeeze(y, {0}) : y);
  return {};
}

}  // namespace tessera::onnx
