# libingot_runtime, static and shared, for programs that load .ingot files: the C API and all it needs in one file, without
# protobuf, LLVM or NVRTC. Installed with headers, a CMake package and pkg-config as the component "runtime".
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# zlib goes in, so that neither library needs another one beside it.
find_library(INGOT_Z_ARCHIVE libz.a REQUIRED)
set(zlib_folder ${CMAKE_BINARY_DIR}/zlib_objects)
file(MAKE_DIRECTORY ${zlib_folder})
execute_process(COMMAND ${CMAKE_AR} x ${INGOT_Z_ARCHIVE} WORKING_DIRECTORY ${zlib_folder} COMMAND_ERROR_IS_FATAL ANY)
file(GLOB zlib_objects ${zlib_folder}/*.o)
set_source_files_properties(${zlib_objects} PROPERTIES EXTERNAL_OBJECT TRUE)

set(runtime_objects ${zlib_objects} $<TARGET_OBJECTS:ingot_support> $<TARGET_OBJECTS:ingot_fmt> $<TARGET_OBJECTS:ingot_runtime>)
add_library(ingot_runtime_static STATIC ${runtime_objects})
add_library(ingot_runtime_shared SHARED ${runtime_objects})
foreach(library ingot_runtime_static ingot_runtime_shared)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME ingot_runtime LINKER_LANGUAGE CXX
    ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  target_link_libraries(${library} PUBLIC ${CMAKE_DL_LIBS} Threads::Threads)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime/include>)
endforeach()
set_target_properties(ingot_runtime_shared PROPERTIES EXPORT_NAME runtime VERSION ${PROJECT_VERSION} SOVERSION 1)
set_target_properties(ingot_runtime_static PROPERTIES EXPORT_NAME runtime_static INTERFACE_LINK_LIBRARIES "stdc++;m;${CMAKE_DL_LIBS};Threads::Threads")
# Only the C API is visible, under the version of its ABI.
set(map ${PROJECT_SOURCE_DIR}/cmake/runtime.map)
set_target_properties(ingot_runtime_shared PROPERTIES LINK_DEPENDS ${map})
target_link_options(ingot_runtime_shared PRIVATE -Wl,--version-script=${map} -Wl,--gc-sections -Wl,--no-undefined)
if(INGOT_PORTABLE)
  target_link_options(ingot_runtime_shared PRIVATE -static-libstdc++ -static-libgcc)
endif()

install(TARGETS ingot_runtime_static ingot_runtime_shared EXPORT IngotTargets COMPONENT runtime
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/include/ingot DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
install(EXPORT IngotTargets NAMESPACE Ingot:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Ingot COMPONENT runtime)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/IngotConfig.cmake.in ${CMAKE_BINARY_DIR}/IngotConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Ingot)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/IngotConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/IngotConfig.cmake ${CMAKE_BINARY_DIR}/IngotConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Ingot COMPONENT runtime)
configure_file(${PROJECT_SOURCE_DIR}/cmake/ingot_runtime.pc.in ${CMAKE_BINARY_DIR}/ingot_runtime.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/ingot_runtime.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)
