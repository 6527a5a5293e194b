# The list of installed files, for deploy/collect.sh (the bundle, the image) and for CPack
# (deploy/debs.sh). Programs find presets in ../share/muster.
#   muster, muster-coordinator, muster-worker   components of each installation
#   muster-relocatable                          what bundle and image have besides
#   NAME-debian                                 what the Debian package NAME has besides
set(programs_of_muster muster muster-text muster-serve muster-trainer)
set(programs_of_muster-coordinator muster-coordinator)
set(programs_of_muster-worker muster-worker)

foreach(component IN ITEMS muster muster-coordinator muster-worker)
  set(programs ${programs_of_${component}})
  install(TARGETS ${programs} RUNTIME DESTINATION bin COMPONENT ${component})
  # The tables of symbols stay: they name the functions in stacks of hanging ranks.
  list(TRANSFORM programs PREPEND "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/" OUTPUT_VARIABLE installed)
  list(JOIN installed "\" \"" installed)
  install(CODE "execute_process(COMMAND ${CMAKE_STRIP} --strip-debug \"${installed}\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component})

  set(parts ${component}-debian)
  list(JOIN programs " " programs)
  install(CODE "execute_process(
      COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/deploy/bundle/man_pages.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
              \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share\" ${component}
      OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${parts})
  install(FILES deploy/debian/copyright DESTINATION share/doc/${component} COMPONENT ${parts})
  install(FILES CHANGELOG.md DESTINATION share/doc/${component} COMPONENT ${parts})
  install(FILES deploy/debian/lintian-overrides DESTINATION share/lintian/overrides RENAME ${component} COMPONENT ${parts})
endforeach()

install(DIRECTORY configs progress scripts slurm DESTINATION share/muster COMPONENT muster USE_SOURCE_PERMISSIONS
        PATTERN CMakeLists.txt EXCLUDE PATTERN __pycache__ EXCLUDE)
install(FILES LICENSE DESTINATION share/muster COMPONENT muster)

# NCCL opens the plugin in users' programs, by its path.
foreach(place IN ITEMS "lib muster-relocatable" "lib/muster muster-debian")
  separate_arguments(place)
  list(GET place 0 folder)
  list(GET place 1 component)
  install(TARGETS muster-nccl-profiler LIBRARY DESTINATION ${folder} COMPONENT ${component})
  install(CODE "execute_process(
      COMMAND ${CMAKE_STRIP} --strip-debug \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}/libmuster-nccl-profiler.so\"
      COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component})
endforeach()
# The folder in which Debian's zsh finds completions.
install(CODE "file(RENAME \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/zsh/site-functions\"
                         \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/zsh/vendor-completions\")" COMPONENT muster-debian)
install(FILES progress/muster_progress.py DESTINATION lib/python3/dist-packages COMPONENT muster-debian)
install(FILES progress/muster_progress.h DESTINATION include COMPONENT muster-debian)
foreach(daemon IN ITEMS coordinator worker)
  install(FILES deploy/debian/${daemon}/muster-${daemon}.service DESTINATION lib/systemd/system COMPONENT muster-${daemon}-debian)
  install(FILES deploy/debian/${daemon}/${daemon}.conf DESTINATION /etc/muster COMPONENT muster-${daemon}-debian)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME muster)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Muster developers <muster@muster.invalid>")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_COMPONENTS_ALL)
foreach(component IN ITEMS muster muster-coordinator muster-worker)
  list(APPEND CPACK_COMPONENTS_ALL ${component} ${component}-debian)
endforeach()
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/deploy/debian/packages.cmake)
set(CPACK_MUSTER_FILES ${CMAKE_SOURCE_DIR}/deploy/debian)
set(CPACK_MUSTER_CUDA ${MUSTER_CUDA})
include(CPack)
foreach(component IN ITEMS muster muster-coordinator muster-worker)
  cpack_add_component_group(${component})
  cpack_add_component(${component} GROUP ${component})
  cpack_add_component(${component}-debian GROUP ${component})
endforeach()
