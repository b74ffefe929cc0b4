"""Recipe for Spack: copy this folder to the packages of a Spack repository, and set `git` to where your sources are."""

from spack.package import *  # pylint: disable=wildcard-import,unused-wildcard-import,import-error  # as every recipe


class Tutti(MesonPackage):
    """Collective communication between processes: proven schedules over shared memory and fast networks."""

    homepage = "https://git.example.org/tutti"
    git = "https://git.example.org/tutti.git"

    license("Apache-2.0")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("ucx", default=True, description="The transport over UCX")
    variant("ofi", default=True, description="The transport over libfabric")
    variant("hwloc", default=True, description="The topology of the machine")
    variant("python", default=False, description="The Python package")

    depends_on("cxx", type="build")
    depends_on("meson@1:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("highway")
    depends_on("fmt")
    depends_on("libsodium")
    depends_on("cli11", type="build")
    depends_on("ucx", when="+ucx")
    depends_on("libfabric", when="+ofi")
    depends_on("hwloc", when="+hwloc")
    depends_on("python@3.9:", when="+python", type=("build", "link", "run"))
    depends_on("py-pybind11@2.10:", when="+python", type="build")
    extends("python", when="+python")

    conflicts("%gcc@:11", msg="tutti is written in C++20 as gcc 12 and clang 14 take it")

    def meson_args(self):
        transports = ["shm", "tcp"] + [name for name in ("ucx", "ofi") if self.spec.satisfies("+" + name)]
        return [
            "-Dtests=disabled",
            "-Dbench=disabled",
            "-Dpeers=disabled",
            "-Dmlsl=disabled",
            "-Dtorch=disabled",
            "-Dtransports=" + ",".join(transports),
            "-Dhwloc=" + ("enabled" if self.spec.satisfies("+hwloc") else "disabled"),
            "-Dpython=" + (self.spec["python"].command.path if self.spec.satisfies("+python") else "disabled"),
        ]
