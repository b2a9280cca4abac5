package report

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// machine returns records that describe the machine, without names of hosts and users.
func machine(data string) []record.Record {
	return []record.Record{
		{Table: "machine", Who: "Date", Text: time.Now().UTC().Format(time.DateOnly)},
		{Table: "machine", Who: "Go", Text: runtime.Version()},
		{Table: "machine", Who: "Kernel", Text: strings.TrimSpace(runtime.GOOS + " " + host.Kernel())},
		{Table: "machine", Who: "CPU", Text: strings.TrimPrefix(host.CPU()+", "+runtime.GOARCH, ", ")},
		{Table: "machine", Who: "Cores", Text: fmt.Sprint(runtime.NumCPU())},
		{Table: "machine", Who: "File system", Text: cmp.Or(host.FileSystem(filepath.Join(data, "tickets_flat_5k")), "unknown")},
	}
}

func canDropCaches() bool {
	f, err := os.OpenFile("/proc/sys/vm/drop_caches", os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
