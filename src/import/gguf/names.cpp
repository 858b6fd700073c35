#include "import/gguf/names.h"

#include <array>

namespace tessera::gguf_import {

using transformer::Key;
using transformer::Part;

namespace {

struct PartName {
  Part part;
  std::string_view text;  // # stands for the layer
};

constexpr PartName kNames[] = {
    {Part::tokens, "token_embd"},
    {Part::positions, "position_embd"},
    {Part::types, "token_types"},
    {Part::input_norm, "token_embd_norm"},
    {Part::attention_norm, "blk.#.attn_norm"},
    {Part::q, "blk.#.attn_q"},
    {Part::k, "blk.#.attn_k"},
    {Part::v, "blk.#.attn_v"},
    {Part::qkv, "blk.#.attn_qkv"},
    {Part::q_norm, "blk.#.attn_q_norm"},
    {Part::k_norm, "blk.#.attn_k_norm"},
    {Part::out, "blk.#.attn_output"},
    {Part::attention_out_norm, "blk.#.post_attention_norm"},
    {Part::feed_norm, "blk.#.ffn_norm"},
    {Part::gate, "blk.#.ffn_gate"},
    {Part::up, "blk.#.ffn_up"},
    {Part::gate_up, "blk.#.ffn_up"},
    {Part::down, "blk.#.ffn_down"},
    {Part::feed_out_norm, "blk.#.post_ffw_norm"},
    {Part::router, "blk.#.ffn_gate_inp"},
    {Part::expert_gate, "blk.#.ffn_gate_exps"},
    {Part::expert_up, "blk.#.ffn_up_exps"},
    {Part::expert_down, "blk.#.ffn_down_exps"},
    {Part::shared_gate, "blk.#.ffn_gate_shexp"},
    {Part::shared_up, "blk.#.ffn_up_shexp"},
    {Part::shared_down, "blk.#.ffn_down_shexp"},
    {Part::shared_switch, "blk.#.ffn_gate_inp_shexp"},
    {Part::final_norm, "output_norm"},
    {Part::head, "output"},
    {Part::bias_table, "attn_rel_b"},
    {Part::pooler, "cls"},
};

}  // namespace

bool is_stacked(Part part) { return part == Part::expert_gate || part == Part::expert_up || part == Part::expert_down; }

std::string tensor_name(const Key& key, bool post_norm) {
  std::string_view pattern = "?";
  for (const PartName& name : kNames)
    if (name.part == key.part) pattern = name.text;
  if (post_norm && key.part == Part::attention_norm) pattern = "blk.#.attn_output_norm";
  if (post_norm && key.part == Part::feed_norm) pattern = "blk.#.layer_output_norm";
  std::string text;
  for (char c : pattern) text += c == '#' ? std::to_string(key.layer) : std::string(1, c);
  return text + (key.bias ? ".bias" : ".weight");
}

std::string expert_name(const Key& key) {
  std::string text = tensor_name(key, false);
  constexpr std::string_view stacked = "_exps";
  if (const size_t at = text.find(stacked); at != std::string::npos)
    text.replace(at, stacked.size(), "." + std::to_string(key.expert));
  return text;
}

}  // namespace tessera::gguf_import
