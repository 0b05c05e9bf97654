# SPDX-License-Identifier: BSD-2-Clause
#
# Installs the headers and the pkg-config file into a folder, and compiles a program against them that
# includes only what old programs did, in the versions of C and C++ that they are written in. With the
# libraries built, it is also linked with the one flag more, and found by find_package().

file(REMOVE_RECURSE ${STAGE})
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(failed)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "${what}: ${command}\n${text}")
  endif()
endfunction()

run("installing" ${CMAKE_COMMAND} --install ${BUILD} --component libibverbs_exp --prefix ${STAGE}/root)

set(ENV{PKG_CONFIG_PATH} ${STAGE}/root/${LIBDIR}/pkgconfig)
function(flags kind out)
  execute_process(COMMAND pkg-config ${kind} libibverbs_exp RESULT_VARIABLE failed
                  OUTPUT_VARIABLE text ERROR_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "pkg-config ${kind} libibverbs_exp: ${text}")
  endif()
  separate_arguments(text UNIX_COMMAND "${text}")
  set(${out} ${text} PARENT_SCOPE)
endfunction()
flags(--cflags cflags)

# The same program as both. rdma_cma.h is not on every machine that builds this.
file(MAKE_DIRECTORY ${STAGE})
configure_file(${SOURCE}/old_program.c ${STAGE}/old_program.cc COPYONLY)
set(sources "")
execute_process(COMMAND ${C} -E -x c /dev/null -include rdma/rdma_cma.h RESULT_VARIABLE no_cma
                OUTPUT_QUIET ERROR_QUIET)
set(cma "")
if(NOT no_cma)
  set(cma -DONLY_RDMA_CMA)
endif()

foreach(define "" ${cma})
  foreach(standard c99 gnu99 c11 gnu11 c17)
    run("C, ${standard}" ${C} -std=${standard} -Wall -Wextra -pedantic -Werror ${cflags} ${define}
        -c ${SOURCE}/old_program.c -o ${STAGE}/c.o)
  endforeach()
  foreach(standard c++11 gnu++11 c++14 c++17 c++20)
    run("C++, ${standard}" ${CXX} -std=${standard} -Wall -Wextra -pedantic -Werror ${cflags}
        ${define} -c ${STAGE}/old_program.cc -o ${STAGE}/cc.o)
  endforeach()
endforeach()

# Not as headers of the system, which may say what they like: the text itself is clean too.
file(GLOB headers ${STAGE}/root/include/libibverbs_exp/infiniband/*.h)
foreach(header ${headers})
  file(READ ${header} text)
  string(REPLACE "#pragma GCC system_header" "" text "${text}")
  get_filename_component(name ${header} NAME)
  file(WRITE ${STAGE}/plain/infiniband/${name} "${text}")
endforeach()
run("C without leniency" ${C} -std=c99 -Wall -Wextra -Werror -I${STAGE}/plain
    -c ${SOURCE}/old_program.c -o ${STAGE}/c.o)
run("C++ without leniency" ${CXX} -std=c++20 -Wall -Wextra -Werror -I${STAGE}/plain
    -c ${STAGE}/old_program.cc -o ${STAGE}/cc.o)

# Nothing is found by programs that did not ask.
file(WRITE ${STAGE}/probe.c "#include <infiniband/verbs_exp.h>\n")
execute_process(COMMAND ${C} -I${STAGE}/root/include -c ${STAGE}/probe.c -o ${STAGE}/probe.o
                RESULT_VARIABLE hidden OUTPUT_QUIET ERROR_QUIET)
if(NOT hidden)
  message(FATAL_ERROR "infiniband/verbs_exp.h is found without the flags of libibverbs_exp")
endif()

if(NOT LIBRARIES)
  message(STATUS "libkeyhole is not built here: nothing is linked")
  return()
endif()
flags(--libs libs)
run("linking" ${C} -Wall ${cflags} ${SOURCE}/old_program.c -o ${STAGE}/old_program ${libs}
    -Wl,-rpath-link,${LIBRARIES})

file(WRITE ${STAGE}/package/CMakeLists.txt "
cmake_minimum_required(VERSION 3.16)
project(old_program C CXX)
find_package(libibverbs_exp 1.0 REQUIRED)
add_executable(old_program_c ${SOURCE}/old_program.c)
add_executable(old_program_cc ${STAGE}/old_program.cc)
foreach(program old_program_c old_program_cc)
  target_link_libraries(\${program} PRIVATE libibverbs_exp::ibverbs_exp)
  target_link_options(\${program} PRIVATE -Wl,-rpath-link,${LIBRARIES})
endforeach()
")
run("find_package" ${CMAKE_COMMAND} -S ${STAGE}/package -B ${STAGE}/package/build
    -DCMAKE_PREFIX_PATH=${STAGE}/root -DCMAKE_C_COMPILER=${C} -DCMAKE_CXX_COMPILER=${CXX})
run("building with the package" ${CMAKE_COMMAND} --build ${STAGE}/package/build)
