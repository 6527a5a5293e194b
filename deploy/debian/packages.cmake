# Read by cpack: the Debian packages and what they depend on. cmake/MusterInstall.cmake lists their
# files.
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(same "(= ${CPACK_PACKAGE_VERSION})")

# A build with CUDA gives muster-cuda, whose trainer runs on CPUs, too.
if(CPACK_MUSTER_CUDA)
  set(CPACK_DEBIAN_MUSTER_PACKAGE_NAME muster-cuda)
  set(CPACK_DEBIAN_MUSTER_PACKAGE_PROVIDES "muster ${same}")
  set(CPACK_DEBIAN_MUSTER_PACKAGE_CONFLICTS muster)
  set(CPACK_DEBIAN_MUSTER_PACKAGE_REPLACES muster)
else()
  set(CPACK_DEBIAN_MUSTER_PACKAGE_NAME muster)
endif()
set(CPACK_DEBIAN_MUSTER_DESCRIPTION "launcher and trainer for large-model jobs
Muster starts the ranks of a training, detects within seconds that one has
died, hangs or is slow, names it, and restarts the job from its newest
checkpoint. This package has the commands, the trainer, presets, wrappers
for Slurm and the module for programs that report their progress.")
set(CPACK_DEBIAN_MUSTER_PACKAGE_DEPENDS "python3:any")
set(CPACK_DEBIAN_MUSTER_PACKAGE_RECOMMENDS "rclone, ca-certificates")

set(CPACK_DEBIAN_MUSTER-COORDINATOR_PACKAGE_NAME muster-coordinator)
set(CPACK_DEBIAN_MUSTER-COORDINATOR_DESCRIPTION "daemon that places and restarts the jobs of Muster
The coordinator queues jobs, places their ranks on workers, and decides what
happens after a fault. A fleet has one.")
set(CPACK_DEBIAN_MUSTER-COORDINATOR_PACKAGE_DEPENDS "adduser")
set(CPACK_DEBIAN_MUSTER-COORDINATOR_PACKAGE_RECOMMENDS "muster ${same}")

set(CPACK_DEBIAN_MUSTER-WORKER_PACKAGE_NAME muster-worker)
set(CPACK_DEBIAN_MUSTER-WORKER_DESCRIPTION "daemon that runs the ranks of Muster's jobs on a node
The worker starts, watches and stops ranks as the coordinator decides. Each
node has one.")
set(CPACK_DEBIAN_MUSTER-WORKER_PACKAGE_DEPENDS "muster ${same}, adduser")

foreach(daemon IN ITEMS coordinator worker)
  set(folder ${CPACK_MUSTER_FILES}/${daemon})
  string(TOUPPER muster-${daemon} component)
  set(CPACK_DEBIAN_${component}_PACKAGE_CONTROL_EXTRA
      "${folder}/postinst;${folder}/prerm;${folder}/postrm;${folder}/conffiles")
endforeach()
