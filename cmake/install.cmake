# The library as one file, and its installation: headers, libtessera, the command, and a CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The folders that define the public API are whole in it; of the others the linker takes what those need.
set(public_folders base tensor)
if(TARGET tessera_engine)
  list(APPEND public_folders engine)
endif()
add_library(tessera_shared SHARED)
foreach(folder ${public_folders})
  target_sources(tessera_shared PRIVATE $<TARGET_OBJECTS:tessera_${folder}>)
  target_link_libraries(tessera_shared PRIVATE tessera_${folder})
endforeach()
target_link_libraries(tessera_shared PRIVATE tessera_flags PUBLIC tl::expected)
target_include_directories(tessera_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tessera_shared INTERFACE cxx_std_20)
set(exports ${CMAKE_CURRENT_LIST_DIR}/exports.map)
target_link_options(tessera_shared PRIVATE LINKER:--version-script=${exports})
if(NOT TESSERA_SANITIZE)
  target_link_options(tessera_shared PRIVATE LINKER:--no-undefined)
endif()
# Before 1.0 every minor version may change the binary interface.
set_target_properties(tessera_shared PROPERTIES
  OUTPUT_NAME tessera EXPORT_NAME tessera LINKER_LANGUAGE CXX LINK_DEPENDS ${exports}
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
add_library(Tessera::tessera ALIAS tessera_shared)

install(TARGETS tessera_shared EXPORT TesseraTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tessera)
  install(TARGETS tessera RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TesseraConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/TesseraConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TesseraConfig.cmake ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
        DESTINATION ${package_dir})
