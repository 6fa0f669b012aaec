# Ridge as a library: one static archive of all modules up to `service`, the public headers, and files by which others find them.
#   cmake --install build/release --prefix DIR --component library
set(RIDGE_LIBRARY_MODULES base quant cache gguf graph backend text model sampling engine service)
set(archive ${PROJECT_BINARY_DIR}/lib/libridge.a)
set(script "create ${archive}\n")
set(modules)
foreach(module IN LISTS RIDGE_LIBRARY_MODULES)
  string(APPEND script "addlib $<TARGET_FILE:ridge_${module}>\n")
  list(APPEND modules ridge_${module})
endforeach()
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/lib/archive.mri CONTENT "${script}save\nend\n")
add_custom_command(OUTPUT ${archive} DEPENDS ${modules} ${PROJECT_BINARY_DIR}/lib/archive.mri
                   COMMAND ${CMAKE_COMMAND} -E rm -f ${archive} COMMAND ${CMAKE_AR} -M < ${PROJECT_BINARY_DIR}/lib/archive.mri)
add_custom_target(ridge_library DEPENDS ${archive})

# For programs of this tree.
add_library(ridge_public INTERFACE)
target_include_directories(ridge_public INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(ridge_public INTERFACE ridge_service)

include(GNUInstallDirs)
set(RIDGE_LINKS fmt pcre2-8 utf8proc xxhash pthread ${CMAKE_DL_LIBS})
list(JOIN RIDGE_LINKS " -l" links)
file(RELATIVE_PATH RIDGE_INCLUDE_FROM_LIB ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
set(RIDGE_PKG_LIBS "-lridge -l${links} -lstdc++ -lm")
configure_file(cmake/ridge.pc.in ${PROJECT_BINARY_DIR}/lib/ridge.pc @ONLY)
configure_file(cmake/RidgeConfig.cmake.in ${PROJECT_BINARY_DIR}/lib/RidgeConfig.cmake @ONLY)
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(FILES include/ridge/ridge.h include/ridge/ridge_c.h src/base/result.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ridge COMPONENT library)
install(FILES ${PROJECT_BINARY_DIR}/lib/ridge.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
install(FILES ${PROJECT_BINARY_DIR}/lib/RidgeConfig.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Ridge COMPONENT library)
install(TARGETS ridge RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
