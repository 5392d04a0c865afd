# The shared libraries, and the package that others find: qkv::attention (the operator) and qkv::qkv (everything).
# A program links one of the two: libqkv holds the operator as well.
option(QKV_INSTALL "Make the install rules" ${PROJECT_IS_TOP_LEVEL})

# qkv_library(NAME OUTPUT library LAYERS layer...): the layers as one shared library, qkv::NAME. The target is
# qkv_NAME: the build folder's file qkv, the command, would hide a target of that name.
function(qkv_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT" "LAYERS")
  set(target qkv_${name})
  list(TRANSFORM arg_LAYERS PREPEND qkv_layer_)
  list(TRANSFORM arg_LAYERS REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  add_library(${target} SHARED ${objects})
  add_library(qkv::${name} ALIAS ${target})
  # All code is in the objects; the layers are linked for the libraries that they use.
  target_link_libraries(${target} PRIVATE ${arg_LAYERS} qkv_settings)
  target_link_options(${target} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
  if(NOT QKV_SANITIZE)  # a sanitizer's own symbols come from the program
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${arg_OUTPUT} EXPORT_NAME ${name}
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})  # before 1.0 a minor version may break
endfunction()

if(NOT QKV_INSTALL AND QKV_BUILD_PYTHON)
  return()  # a Python package holds its own copy
endif()

set(operator_layers runtime kernels attention)
qkv_library(attention OUTPUT qkv-attention LAYERS ${operator_layers})
if(NOT QKV_OPERATOR_ONLY)
  qkv_library(qkv OUTPUT qkv LAYERS ${operator_layers} layers formats text models train view)
endif()

if(NOT QKV_INSTALL)
  return()
endif()

# Component library: what a program is built with and runs on. Component command: qkv itself.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/qkv)
install(TARGETS qkv_attention qkv_qkv EXPORT qkvTargets COMPONENT library)
install(DIRECTORY include/qkv DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library FILES_MATCHING PATTERN *.h)
install(EXPORT qkvTargets NAMESPACE qkv:: DESTINATION ${package_dir} COMPONENT library)
configure_package_config_file(cmake/qkvConfig.cmake.in package/qkvConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(package/qkvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/qkvConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/package/qkvConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT library)

# The prefix is written relative to the .pc file, so that an installed tree may be moved.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_dir} OUTPUT_VARIABLE up)
function(qkv_pkg_config library description)
  configure_file(cmake/pkg-config.pc.in package/${library}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/${library}.pc DESTINATION ${pc_dir} COMPONENT library)
endfunction()
qkv_pkg_config(qkv-attention "Exact, fused attention for CPUs: the operator")
qkv_pkg_config(qkv "${PROJECT_DESCRIPTION}")

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
if(NOT QKV_OPERATOR_ONLY)
  install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/qkv/models COMPONENT library)
endif()

if(QKV_BUILD_CLI)
  install(TARGETS qkv_cli COMPONENT command)
  configure_file(cmake/qkv.1.in package/qkv.1 @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/qkv.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
endif()
if(QKV_BUILD_CLI AND NOT CMAKE_CROSSCOMPILING)  # the command writes its own completions
  function(qkv_completion shell file folder)
    set(script ${CMAKE_CURRENT_BINARY_DIR}/package/${file})
    add_custom_command(OUTPUT ${script} COMMAND qkv_cli completion ${shell} > ${script} DEPENDS qkv_cli VERBATIM)
    target_sources(qkv_completions PRIVATE ${script})
    install(FILES ${script} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder} COMPONENT command)
  endfunction()
  add_custom_target(qkv_completions ALL)
  qkv_completion(bash qkv bash-completion/completions)
  qkv_completion(zsh _qkv zsh/site-functions)
  qkv_completion(fish qkv.fish fish/vendor_completions.d)
endif()
