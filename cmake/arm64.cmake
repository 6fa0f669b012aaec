# Toolchain of the preset `arm64`: Debian's cross compiler (g++-aarch64-linux-gnu). What is built runs under qemu-aarch64-static.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# Libraries of the build machine are of no use; where Debian's arm64 ones are installed, they are found by their own folder.
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
