// One include for the tests that works with Catch2 2.x (Debian 12) and 3.x.
#pragma once
#ifdef KVMSERVER_CATCH2_V3
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
