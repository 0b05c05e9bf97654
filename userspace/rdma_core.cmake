# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
# Finds what a provider needs from rdma-core: the installed libibverbs, and the private headers of
# the very same version, which no distribution packages. They come from rdma-core's source tree
# (Debian: apt-get source --tar-only rdma-core, and unpack it):
#
#   cmake -DKEYHOLE_RDMA_CORE_SOURCE=<tree> ...
#
# The source must be of the version installed, because providers may be loaded by that version only.
# A tree under /usr/src is found without being named. rdma-core's configure step collects the
# headers in a folder include/; when the tree has not been configured (or KEYHOLE_RDMA_CORE_INCLUDE
# does not name that folder) it is done here, in the build folder.
#
# Sets KEYHOLE_RDMA_CORE_FOUND (else KEYHOLE_RDMA_CORE_MISSING says why not),
# KEYHOLE_RDMA_CORE_INCLUDES, KEYHOLE_RDMA_CORE_VERSION, KEYHOLE_PABI_VERSION, KEYHOLE_IBVERBS_LIBRARY.

set(KEYHOLE_RDMA_CORE_SOURCE "" CACHE PATH "Source tree of the installed version of rdma-core")
set(KEYHOLE_RDMA_CORE_INCLUDE "" CACHE PATH
    "Folder include/ of that tree's build; empty: found or made")

set(KEYHOLE_RDMA_CORE_FOUND FALSE)
set(KEYHOLE_RDMA_CORE_MISSING "")

function(keyhole_find_rdma_core)
  find_library(KEYHOLE_IBVERBS_LIBRARY ibverbs)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(KEYHOLE_IBVERBS QUIET libibverbs)
  endif()
  if(NOT KEYHOLE_IBVERBS_LIBRARY OR NOT KEYHOLE_IBVERBS_VERSION)
    set(KEYHOLE_RDMA_CORE_MISSING "no libibverbs with headers and pkg-config (libibverbs-dev)"
        PARENT_SCOPE)
    return()
  endif()
  # libibverbs' version is its own, then rdma-core's: 1.14.56.1 is of rdma-core 56.1.
  string(REGEX REPLACE "^[0-9]+\\.[0-9]+\\." "" version "${KEYHOLE_IBVERBS_VERSION}")

  set(source ${KEYHOLE_RDMA_CORE_SOURCE})
  if(NOT source)
    foreach(tree /usr/src/rdma-core-${version} /usr/src/rdma-core)
      if(EXISTS ${tree}/libibverbs/driver.h)
        set(source ${tree})
        break()
      endif()
    endforeach()
  endif()
  if(NOT source)
    set(KEYHOLE_RDMA_CORE_MISSING
        "the source of rdma-core ${version} is needed, see KEYHOLE_RDMA_CORE_SOURCE" PARENT_SCOPE)
    return()
  endif()
  if(NOT EXISTS ${source}/libibverbs/driver.h)
    message(FATAL_ERROR "KEYHOLE_RDMA_CORE_SOURCE: ${source} is no source tree of rdma-core")
  endif()

  # Two versions, from the tree itself: the package's and that of the interface to providers.
  file(STRINGS ${source}/CMakeLists.txt lines
       REGEX "^set\\((PACKAGE_VERSION|IBVERBS_PABI_VERSION) ")
  foreach(line ${lines})
    if(line MATCHES "PACKAGE_VERSION \"([0-9.]+)\"")
      set(source_version ${CMAKE_MATCH_1})
    elseif(line MATCHES "IBVERBS_PABI_VERSION \"([0-9]+)\"")
      set(pabi ${CMAKE_MATCH_1})
    endif()
  endforeach()
  if(NOT source_version VERSION_EQUAL version)
    message(FATAL_ERROR "${source} is rdma-core ${source_version}, but version ${version} is "
                        "installed: a provider must be built from the source of the latter")
  endif()

  if(KEYHOLE_RDMA_CORE_INCLUDE)
    set(include ${KEYHOLE_RDMA_CORE_INCLUDE})
  elseif(EXISTS ${source}/build/include/infiniband/driver.h)
    set(include ${source}/build/include)
  else()
    set(build ${CMAKE_CURRENT_BINARY_DIR}/rdma-core)
    set(include ${build}/include)
    if(NOT EXISTS ${include}/infiniband/driver.h)
      message(STATUS "Configuring rdma-core ${version} for its headers")
      execute_process(
        COMMAND ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR} -DNO_PYVERBS=1 -DNO_MAN_PAGES=1
                -S ${source} -B ${build}
        RESULT_VARIABLE failed OUTPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/rdma-core.log
        ERROR_FILE ${CMAKE_CURRENT_BINARY_DIR}/rdma-core.log)
      if(failed)
        message(FATAL_ERROR "rdma-core's configure step failed: see "
                            "${CMAKE_CURRENT_BINARY_DIR}/rdma-core.log")
      endif()
    endif()
  endif()

  # Left to rdma-core's build step: the kernel's command structures as tagless ones.
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
  if(NOT EXISTS ${generated}/kernel-abi/ib_user_verbs.h)
    find_program(KEYHOLE_PYTHON NAMES python3 REQUIRED)
    file(MAKE_DIRECTORY ${generated}/kernel-abi)
    execute_process(
      COMMAND ${KEYHOLE_PYTHON} ${source}/buildlib/make_abi_structs.py
              ${source}/kernel-headers/rdma/ib_user_verbs.h
              ${generated}/kernel-abi/ib_user_verbs.h
      RESULT_VARIABLE failed)
    if(failed)
      file(REMOVE ${generated}/kernel-abi/ib_user_verbs.h)
      message(FATAL_ERROR "${source}/buildlib/make_abi_structs.py failed")
    endif()
  endif()

  set(KEYHOLE_RDMA_CORE_INCLUDES ${generated} ${include} PARENT_SCOPE)
  set(KEYHOLE_RDMA_CORE_VERSION ${version} PARENT_SCOPE)
  set(KEYHOLE_PABI_VERSION ${pabi} PARENT_SCOPE)
  set(KEYHOLE_RDMA_CORE_FOUND TRUE PARENT_SCOPE)
  set_property(GLOBAL PROPERTY KEYHOLE_RDMA_CORE_TREE ${source}) # for tests
  message(STATUS "libkeyhole: for rdma-core ${version} (provider interface ${pabi}), ${source}")
endfunction()

keyhole_find_rdma_core()
