# SPDX-License-Identifier: Apache-2.0
# torture_engine(NAME): the program torture_NAME, which plays histories on that engine, and its tests. The caller's folder
# has torture.c, and the library NAME_support.
set(torture_folder ${CMAKE_CURRENT_LIST_DIR})

function(torture_engine name)
  set(parts other_engine.c options.c stage.c history.c world.c client.c calls.c many.c check.c check_many.c
    noise.c transcript.c)
  list(TRANSFORM parts PREPEND ${torture_folder}/)
  add_executable(torture_${name} torture.c ${parts})
  target_include_directories(torture_${name} PRIVATE ${torture_folder})
  target_link_libraries(torture_${name} PRIVATE ${name}_support dlock_${name}_objects
    test_support dlock_objects ladder_flags)
  target_link_options(torture_${name} PRIVATE LINKER:--wrap=pthread_mutex_unlock)
  add_test(NAME torture_${name} COMMAND torture_${name})
  set_tests_properties(torture_${name} PROPERTIES TIMEOUT 300 PROCESSORS 6 COST 1000)
  # The leader of an ensemble is killed; scripts/torture --rung NAME plays more.
  add_test(NAME torture_${name}_ensemble COMMAND /usr/bin/python3 -B ${torture_folder}/ensembles.py
    --rung ${name} --program $<TARGET_FILE:torture_${name}> --always --seed 4 --histories 2 --jobs 2
    --folder ${CMAKE_CURRENT_BINARY_DIR}/runs)
  set_tests_properties(torture_${name}_ensemble PROPERTIES TIMEOUT 300 PROCESSORS 6 COST 1000 LABELS e2e)
endfunction()
