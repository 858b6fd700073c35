// Python's two ways of formatting strings.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja.h"

namespace tessera::text {

// "%s of %d" % (a, b), and "%(name)s" % fields. E0507 for a form that is not known, or too few values.
Result<Value> format_percent(std::string_view form, const Value& values);

// "{} {0} {name:>5}".format(...). E0507 likewise.
Result<Value> format_braces(std::string_view form, const Arguments& given);

}  // namespace tessera::text
