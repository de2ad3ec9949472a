// From which sizes on a way of running a call is the faster one, as measured on one NVIDIA H200
// (docs/developer/kernels/recurrent.md, docs/developer/kernels/recurrent_map.md). Every way serves every
// size.
#pragma once

namespace warpalign::detail::recurrent {

// Tiles of 8 rows that a group of a resident sweep has: blocks that share units backward, and in place of
// sweeps the front end's products; these in place of sweeps on clusters in float32.
constexpr int kTilesOfSplit = 3, kTilesOfProducts = 8, kTilesOfFloatProducts = 12;
// Two layers sweep side by side where a group then has so many of them at most, from so many steps on.
constexpr int kTilesOfTwoLayers = 6, kStepsOfTwoLayers = 64;

// Single blocks on the matrix units get several rows from so many units on as soon as a multiprocessor would
// have two blocks.
constexpr int kUnitsOfLoneBlocks = 33;

// The fewest rows of a batch whose steps are products of the front end's and a kernel. From so many units of
// all rows on, for each multiprocessor, they are taken in layers with a projection, in float32 and in
// float64; the larger number where float32 products are not those of TF32.
constexpr int kRowsOfProducts = 16;
constexpr int kUnitsOfProjectedProducts = 480, kUnitsOfTf32Products = 360, kUnitsOfFloat32Products = 960,
              kUnitsOfFloat64Products = 88;

// A launch per step in float32 is on the matrix units from so many rows on, where blocks by lanes take more
// than so many turns. A block of a launch on matrix units has more rows from so many units of all rows on,
// for each multiprocessor.
constexpr int kRowsOfFloatUnits = 8, kTurnsOfFloatLanes = 2;
template <class T>
constexpr int kUnitsOfWideBlocks = sizeof(T) == 2 ? 480 : 240;

// Forward steps of float32 are by tiles from so many rows on: by three products of TF32, and by one. With one
// a layer of more units is better off with the front end's products, where these gain at all.
constexpr int kRowsOfTiles = 128, kRowsOfTf32Tiles = 32, kMostUnitsOfTiles = 768;

// The most rows of a single step in one launch for each layer on the matrix units. One row of 16-bit elements
// is there from so many units on; by lanes there is one row alone.
constexpr int kMostSingleUnitRows = 64, kUnitsOfSingleRow = 768;
// More than 32 rows are in groups of 32. From so many units for each multiprocessor on, blocks have twice the
// units; and where a product is one of the matrix units, from so many on they have all rows besides. Float32
// by one product of TF32 has no such groups of twice the units.
template <class T>
constexpr int kUnitsOfWideGroups = sizeof(T) == 2 ? 7 : 11;
constexpr int kUnitsOfWideRows = 11;

}  // namespace warpalign::detail::recurrent
