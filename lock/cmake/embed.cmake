# SPDX-License-Identifier: Apache-2.0
# embed_scripts(NAME SCRIPT...): in the present binary folder NAME.c, which holds the scripts as C arrays with the
# SHA1s that Redis will know them by, and NAME.h, which names them: lua/x.lua is lua_x. A line "-- include parts/y.lua" of
# a script stands for that file beside it.
function(embed_scripts name)
  set(header "/* Made from lua/. */\n#include \"script.h\"\n")
  set(source "/* Made from lua/. */\n#include \"${name}.h\"\n")
  foreach(script ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
    get_filename_component(script_name ${script} NAME_WE)
    get_filename_component(folder ${script} DIRECTORY)
    file(READ ${script} text)
    file(GLOB parts CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/parts/*.lua)
    foreach(part ${parts})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${part})
      file(READ ${folder}/${part} part_text)
      string(REPLACE "-- include ${part}\n" "${part_text}" text "${text}")
    endforeach()
    string(SHA1 sha1 "${text}")
    string(HEX "${text}" bytes)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(APPEND header "extern const struct script lua_${script_name};\n")
    string(APPEND source "static const char text_${script_name}[] = {${bytes}0};\n"
      "const struct script lua_${script_name} = {text_${script_name}, \"${sha1}\"};\n")
  endforeach()
  file(CONFIGURE OUTPUT ${name}.h CONTENT "${header}" @ONLY)
  file(CONFIGURE OUTPUT ${name}.c CONTENT "${source}" @ONLY)
endfunction()
