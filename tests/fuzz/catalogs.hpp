// Catalogues for questions that are read a million times: as shipped, but without calibrations, whose
// thousands of lines take milliseconds and are read by a target of their own.
#pragma once

#include "planner/scenario/scenario.hpp"

namespace shardline::fuzz {

inline const Catalogs& catalogs() {
  static const Catalogs kCatalogs = [] {
    Catalogs c;
    c.models = FUZZ_SOURCES "/models/catalog";
    c.systems = FUZZ_CATALOG;
    c.engines = FUZZ_SOURCES "/planner/engines";
    return c;
  }();
  return kCatalogs;
}

}  // namespace shardline::fuzz
