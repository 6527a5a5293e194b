// The keys and values of rows in etcd. Keys can be read by people: exits/7/2/31,
// request_ids/'ab%2Fc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "coordinator/shell/storage/sqlite_database.h"

namespace muster::coordinator {

// Precedes the number of a key that continues a large row: exits/7/2/31#000001. Keys of rows do not
// contain it, and it sorts before everything that they contain, so the parts of a row follow it.
constexpr char kPartMark = '#';

// Returns the key of a row. Different primary keys have different keys.
std::string name_of_row(std::string_view table, const SqliteRow& primary_key);
// Returns the key of part `part` of a row with this key; part 0 is the row's key itself.
std::string part_key(const std::string& name_of_row, size_t part);
// Returns the table of a row's key.
std::string_view table_of(std::string_view name_of_row);

// Returns the values of the row's parts, each of at most kValueBytesMax.
std::vector<std::string> encode_row(const SqliteRow& row);
// Decodes the concatenated values of `parts` parts. Returns InvalidArgument if they are no row, or
// if parts are missing.
absl::StatusOr<SqliteRow> decode_row(std::string_view bytes, size_t parts);

}  // namespace muster::coordinator
