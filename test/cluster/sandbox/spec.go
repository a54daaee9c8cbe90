// Package sandbox runs one container: a program in namespaces of its own, on a
// root filesystem put together from bind mounts, with exactly the credentials it
// was given. It exists so that a pod of the test cluster meets the limits that a
// real node sets, without a container runtime. It knows nothing of Kubernetes,
// and imports no Kubernetes package: the enter program links it and must start fast.
package sandbox

// Spec is everything that enter needs to become the container's program.
type Spec struct {
	// Stage is an empty folder of the node on which the root is mounted; the
	// mount is seen inside the container's mount namespace only.
	Stage    string
	Hostname string
	Mounts   []Mount
	// ReadOnlyRoot leaves only mounts writable.
	ReadOnlyRoot bool

	Argv []string
	Env  []string
	Dir  string

	User         uint32
	Group        uint32
	Groups       []uint32
	Capabilities []string // without CAP_, the whole set
	NoNewPrivs   bool
	// FilterSyscalls refuses what container runtimes refuse by default.
	FilterSyscalls bool
	// HostNetwork keeps the node's network namespace, and with it the node's /sys.
	HostNetwork bool
}

// Mount binds a file or folder of the node into the container; an empty Source
// is an empty tmpfs.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// DefaultCapabilities is the set of capabilities that container runtimes leave to a
// container that asks for nothing.
var DefaultCapabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
	"NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// File descriptors by which the node and enter talk.
const (
	specFD   = 3 // the Spec as JSON
	resultFD = 4 // what failed; closed by the exec that succeeds
	netFD    = 5 // the pod's network namespace, absent with HostNetwork
)
