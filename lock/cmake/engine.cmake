# SPDX-License-Identifier: Apache-2.0
# dlock_engine(NAME SOURCE...): the package libdlock-NAME of an engine whose locks are queues on the servers. It makes
# the objects, for tests, and the library, and says what is installed.
function(dlock_engine name)
  set(objects dlock_${name}_objects)
  add_library(${objects} OBJECT ${ARGN})
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON C_STANDARD 11
    C_STANDARD_REQUIRED ON C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden)
  target_compile_definitions(${objects} PRIVATE _GNU_SOURCE)
  target_include_directories(${objects} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR})
  target_link_libraries(${objects} PUBLIC dlock_queued Threads::Threads)
  if(TARGET ladder_flags)
    target_link_libraries(${objects} PRIVATE ladder_flags)
  endif()

  set(library dlock_${name})
  add_library(${library} SHARED)
  add_library(dlock::${name} ALIAS ${library})
  set_target_properties(${library} PROPERTIES OUTPUT_NAME dlock-${name} EXPORT_NAME ${name}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(${library} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${library} PUBLIC dlock PRIVATE ${objects})
  target_link_options(${library} PRIVATE LINKER:--as-needed LINKER:-z,nodelete LINKER:-z,relro
    LINKER:-z,now LINKER:-z,noexecstack)
  if(NOT LADDER_SANITIZE)
    target_link_options(${library} PRIVATE LINKER:--no-undefined)
  endif()

  # In one export with libdlock: an installation that has it finds both by find_package(dlock).
  install(TARGETS ${library} EXPORT dlock LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES dlock_${name}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(dlock-${name}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/dlock-${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/dlock-${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
