# SPDX-License-Identifier: Apache-2.0
# pytest_files(PREFIX [KEEP] [TIMEOUT S] [PROCESSORS N] [LABELS LABEL...] [ENVIRONMENT NAME=VALUE...] [EXCEPT FILE...])
# Each test_*.py of this folder becomes one CTest test. Its name is that of the file, with PREFIX instead of
# test_. KEEP: its files stay in the build folder until it runs again. Without KEEP they are below /tmp, where
# paths are short enough for sockets.
function(pytest_files prefix)
  cmake_parse_arguments(PARSE_ARGV 1 its KEEP "TIMEOUT;PROCESSORS" "LABELS;ENVIRONMENT;EXCEPT")
  if(NOT its_PROCESSORS)
    set(its_PROCESSORS 4)
  endif()
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/test_*.py)
  list(TRANSFORM its_EXCEPT PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(REMOVE_ITEM files ${its_EXCEPT})
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    string(REPLACE "test_" ${prefix} name ${name})
    set(folder)
    if(its_KEEP)
      set(folder --basetemp=${CMAKE_CURRENT_BINARY_DIR}/${name})
    endif()
    add_test(NAME ${name} COMMAND /usr/bin/python3 -m pytest -q -p no:cacheprovider ${folder} ${file}
      WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES PROCESSORS ${its_PROCESSORS} TIMEOUT ${its_TIMEOUT} LABELS "${its_LABELS}"
      SKIP_RETURN_CODE 77
      ENVIRONMENT "${its_ENVIRONMENT};PYTHONDONTWRITEBYTECODE=1")
  endforeach()
endfunction()
