# SPDX-License-Identifier: Apache-2.0
# sources_of(VARIABLE TARGET NAME...): sets VARIABLE to the target's sources without NAMEs.
function(sources_of variable target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  list(REMOVE_ITEM sources ${ARGN})
  list(TRANSFORM sources PREPEND ${folder}/ REGEX "^[^/]")
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()
