# SPDX-License-Identifier: BSD-2-Clause
#
# Copies rdma-core's tree, puts the provider into it twice (the second time as an update), configures it
# as always, and builds the provider's target. Then what was built must be a plugin that libibverbs could
# load and a library with the direct verbs. A copy is kept from one run to the next, so that a
# second run builds only what has changed.

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${what} failed (${failed}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(copy ${WORK}/rdma-core)
if(NOT EXISTS ${copy}/whole)
  file(REMOVE_RECURSE ${copy})
  file(COPY ${TREE}/ DESTINATION ${copy} PATTERN "build" EXCLUDE PATTERN ".git" EXCLUDE)
  file(TOUCH ${copy}/whole)
endif()

foreach(time first second)
  run("in-tree.sh, the ${time} time" sh ${SOURCE}/userspace/in-tree.sh ${copy})
endforeach()
file(STRINGS ${copy}/CMakeLists.txt named REGEX "add_subdirectory\\(providers/keyhole\\)")
list(LENGTH named count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "the tree's CMakeLists.txt names providers/keyhole ${count} times")
endif()

# Again, too, as any change of a CMakeLists.txt brings about.
foreach(time first second)
  run("rdma-core's configure step, the ${time} time" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${copy} -B ${WORK}/build
      -DNO_PYVERBS=1 -DNO_MAN_PAGES=1 -DCMAKE_C_COMPILER=${C} -DCMAKE_CXX_COMPILER=${CXX})
endforeach()
run("building the provider" ${CMAKE_COMMAND} --build ${WORK}/build --target keyhole)
if(output MATCHES "providers/keyhole[^\n]*warning:[^\n]*")
  message(FATAL_ERROR "the build has warnings: ${CMAKE_MATCH_0}")
endif()

file(GLOB plugin ${WORK}/build/lib/libkeyhole-rdmav*.so)
if(NOT plugin)
  message(FATAL_ERROR "no plugin in ${WORK}/build/lib")
endif()
run("nm" ${NM} -D --defined-only ${WORK}/build/lib/libkeyhole.so)
foreach(symbol keyholedv_create_mkey keyholedv_create_qp keyholedv_query_device)
  if(NOT output MATCHES " T ${symbol}(@|\n)")
    message(FATAL_ERROR "libkeyhole.so does not export ${symbol}:\n${output}")
  endif()
endforeach()
