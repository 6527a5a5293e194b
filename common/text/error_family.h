// The table of known errors: recognises what a program, a library or the kernel reports when a rank
// ends, and states what it means for the job. docs/errors.md lists the table. Pure functions.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace muster {

// The origin of an error, which decides what a restart can change.
enum class ErrorOrigin {
  kProgram,  // the program's own code: a restart computes the same again
  kData,   // a file that the program reads: one rank may have read it badly, all ranks cannot have
  kSetup,  // software, files, permissions or devices that the node should have
  kNode,   // the hardware or a file system of the node
  kPassing,  // something that may have passed at the next attempt, or whose origin is open
  kPeer,     // a consequence: another rank, or its connection, was lost first
};
constexpr std::array<std::string_view, 6> kErrorOriginNames = {"program", "data",    "setup",
                                                               "node",    "passing", "peer"};

struct ErrorFamily {
  std::string_view name;
  ErrorOrigin origin;
  std::string_view meaning;  // one sentence
  // Texts in lower case, of which a message of this family has at least one. '*' stands for any
  // characters. Names of exceptions, and texts that begin with a number, are whole words.
  std::span<const std::string_view> patterns;
};

// The family of a node whose network device has lost its link.
constexpr std::string_view kNetworkLinkLost = "network link lost";

// Returns the table, in the order in which families are tried: a message belongs to the first one
// that has a pattern of it. Families before the consequences override them: a rank that reports a
// lost peer, and in the same message a failed GPU, has a cause of its own.
std::span<const ErrorFamily> error_families();

// Returns the family of a message; null: it is not known. A message that begins with the type of an
// exception about the program, its data or a missing file belongs to that type, whatever words its
// text has: "KeyError: 'timeout'".
const ErrorFamily* find_error_family(std::string_view text);
// Returns the family with that name; null: there is none.
const ErrorFamily* error_family_named(std::string_view name);

// Returns whether `text` has the pieces of `pattern` between '*' in their order.
bool matches_pattern(std::string_view text, std::string_view pattern);

}  // namespace muster
