// Made by tools/make_tuning.py from tuning/recurrent.json: change that file, and run `make tuning`.
#pragma once

#include "core/tuning.h"
#include "cuda/launch/device.h"

namespace warpalign::detail::recurrent {

struct CudaTuning {
  int device_class;  // DeviceTraits::compute_capability
  // From so many tiles on, blocks of a backward sweep of the whole grid share units. Unit: tiles of 8 rows
  // for each group or cluster.
  int split_tiles;
  // From so many tiles on, lent products serve 16-bit layers in the place of a sweep in one launch. Unit:
  // tiles of 8 rows for each group or cluster.
  int product_tiles;
  // The same of float32 on clusters. Unit: tiles of 8 rows for each group or cluster.
  int float_product_tiles;
  // Up to so many tiles, a launch sweeps two layers, each on half of the blocks. Unit: tiles of 8 rows for
  // each group or cluster.
  int pair_tiles;
  // From so many steps on, a launch sweeps two layers, each on half of the blocks. Unit: steps.
  int pair_steps;
  // The start of a chunk takes as long as so many steps where a launch sweeps two layers: it sets the size of
  // chunks. Unit: steps.
  int pair_chunk_start;
  // The same of layers on streams of their own in single blocks, beside a fourth of a step for each row.
  // Unit: steps.
  int block_chunk_start;
  // The same of layers on clusters. Unit: steps.
  int cluster_chunk_start;
  // The same of launches of steps, and of products. Unit: steps.
  int step_chunk_start;
  // From so many units on, single blocks of 16-bit types have several rows as soon as a multiprocessor would
  // have two blocks. Unit: units.
  int lone_block_units;
  // From so many rows on, steps may be lent products. Unit: rows.
  int product_rows;
  // From so many units on, steps of 16-bit layers with a projection are lent products. Unit: units of all
  // rows per multiprocessor.
  int projected_product_units;
  // From so many units on, steps of float32 are lent products where these are products of TF32. Unit: units
  // of all rows per multiprocessor.
  int tf32_product_units;
  // From so many units on, steps of float32 are lent products where these are products of float32. Unit:
  // units of all rows per multiprocessor.
  int float32_product_units;
  // From so many units on, steps of float64 are lent products. Unit: units of all rows per multiprocessor.
  int float64_product_units;
  // From so many rows on, a launch of a step in float32 may be on the matrix units. Unit: rows.
  int float_unit_rows;
  // Up to so many blocks, a launch of a step in float32 is by lanes. Unit: blocks by lanes per
  // multiprocessor.
  int float_lane_turns;
  // From so many units on, a launch of a step in 16-bit types has blocks of more rows of weights. Unit: units
  // of all rows per multiprocessor.
  int wide_block_units;
  // From so many units on, a launch of a step in float32 on the matrix units has blocks of 32 rows. Unit:
  // units of all rows per multiprocessor.
  int wide_float_block_units;
  // From so many rows on, forward steps of float32 by three products of TF32 go by tiles in shared memory.
  // Unit: rows.
  int tile_rows;
  // From so many blocks on, the same. Unit: hundredths of a block of 64 by 32 per multiprocessor.
  int tile_blocks;
  // From so many blocks on, these tiles have 64 rows of the batch. Unit: hundredths of a block of 64 by 64
  // per multiprocessor.
  int square_tile_blocks;
  // From so many rows on, forward steps of float32 by one product of TF32 go by tiles in shared memory. Unit:
  // rows.
  int tf32_tile_rows;
  // Up to so many units, such steps go by tiles where lent products gain and tiles are large. Unit: units.
  int tf32_tile_units;
  // Up to so many blocks, such steps go by tiles where lent products gain. Unit: blocks of 64 by 32 per
  // multiprocessor.
  int tf32_tile_blocks;
  // Below so many blocks, such tiles have 32 rows of weights. Unit: hundredths of a block of 64 by 32 per
  // multiprocessor.
  int small_tile_blocks;
  // Below so many blocks, the same. Unit: hundredths of a block of 64 by 32 per multiprocessor, of all layers
  // at once.
  int small_tile_layer_blocks;
  // From so many units on, a stream's step of one row in 16-bit types is on the matrix units, and not by
  // lanes. Unit: units.
  int single_row_units;
  // From so many units on, a stream's step of more than 32 rows in 16-bit types has blocks of twice the
  // units. Unit: units per multiprocessor.
  int wide_group_units;
  // The same in float32 by three products of TF32. Unit: units per multiprocessor.
  int wide_float_group_units;
  // From so many units on, such a block has all rows, where a product is one of the matrix units. Unit: units
  // per multiprocessor.
  int wide_row_units;
};
inline constexpr CudaTuning kCudaTunings[] = {
    {
        .device_class = 90,
        .split_tiles = 3,
        .product_tiles = 8,
        .float_product_tiles = 12,
        .pair_tiles = 6,
        .pair_steps = 64,
        .pair_chunk_start = 14,
        .block_chunk_start = 28,
        .cluster_chunk_start = 10,
        .step_chunk_start = 5,
        .lone_block_units = 33,
        .product_rows = 16,
        .projected_product_units = 480,
        .tf32_product_units = 360,
        .float32_product_units = 960,
        .float64_product_units = 88,
        .float_unit_rows = 8,
        .float_lane_turns = 2,
        .wide_block_units = 480,
        .wide_float_block_units = 240,
        .tile_rows = 128,
        .tile_blocks = 75,
        .square_tile_blocks = 150,
        .tf32_tile_rows = 32,
        .tf32_tile_units = 768,
        .tf32_tile_blocks = 2,
        .small_tile_blocks = 70,
        .small_tile_layer_blocks = 150,
        .single_row_units = 768,
        .wide_group_units = 7,
        .wide_float_group_units = 11,
        .wide_row_units = 11,
    },
};
inline TuningField<CudaTuning> cuda_tuning_fields[] = {
    {"split_tiles", &CudaTuning::split_tiles},
    {"product_tiles", &CudaTuning::product_tiles},
    {"float_product_tiles", &CudaTuning::float_product_tiles},
    {"pair_tiles", &CudaTuning::pair_tiles},
    {"pair_steps", &CudaTuning::pair_steps},
    {"pair_chunk_start", &CudaTuning::pair_chunk_start},
    {"block_chunk_start", &CudaTuning::block_chunk_start},
    {"cluster_chunk_start", &CudaTuning::cluster_chunk_start},
    {"step_chunk_start", &CudaTuning::step_chunk_start},
    {"lone_block_units", &CudaTuning::lone_block_units},
    {"product_rows", &CudaTuning::product_rows},
    {"projected_product_units", &CudaTuning::projected_product_units},
    {"tf32_product_units", &CudaTuning::tf32_product_units},
    {"float32_product_units", &CudaTuning::float32_product_units},
    {"float64_product_units", &CudaTuning::float64_product_units},
    {"float_unit_rows", &CudaTuning::float_unit_rows},
    {"float_lane_turns", &CudaTuning::float_lane_turns},
    {"wide_block_units", &CudaTuning::wide_block_units},
    {"wide_float_block_units", &CudaTuning::wide_float_block_units},
    {"tile_rows", &CudaTuning::tile_rows},
    {"tile_blocks", &CudaTuning::tile_blocks},
    {"square_tile_blocks", &CudaTuning::square_tile_blocks},
    {"tf32_tile_rows", &CudaTuning::tf32_tile_rows},
    {"tf32_tile_units", &CudaTuning::tf32_tile_units},
    {"tf32_tile_blocks", &CudaTuning::tf32_tile_blocks},
    {"small_tile_blocks", &CudaTuning::small_tile_blocks},
    {"small_tile_layer_blocks", &CudaTuning::small_tile_layer_blocks},
    {"single_row_units", &CudaTuning::single_row_units},
    {"wide_group_units", &CudaTuning::wide_group_units},
    {"wide_float_group_units", &CudaTuning::wide_float_group_units},
    {"wide_row_units", &CudaTuning::wide_row_units},
};
inline CudaTuning cuda_tuning(const cuda::DeviceTraits& device) {
  return tuned(kCudaTunings, cuda_tuning_fields, device.compute_capability);
}

}  // namespace warpalign::detail::recurrent
