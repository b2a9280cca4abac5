//go:build linux

package floor

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/bench/internal/program"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// fio checks the C loop against fio, an independent program: fio creates as many files, then opens, reads and closes them,
// and the C loop and fileproc read the same files. fio does additional work for each file, so it is not a floor.
func (r *run) fio() {
	const fileSize = 400 // bytes
	name, err := exec.LookPath("fio")
	if err != nil {
		r.compare(turns.Against("fio / C loop", turns.Side{Missing: "fio is not installed"}, turns.Side{}))
		return
	}
	files := len(fail.Must(os.ReadDir(r.dir)))
	r.dir = r.temp(filepath.Dir(r.dir)) // on the same file system
	run := func(args ...string) (string, error) {
		return program.Output(r.ctx, r.dir, name, append([]string{"--name=floor", "--directory=" + r.dir, "--thread",
			fmt.Sprint("--numjobs=", r.threads), fmt.Sprint("--nrfiles=", files/r.threads), fmt.Sprint("--filesize=", fileSize),
			fmt.Sprint("--bs=", fileSize), "--openfiles=1", "--file_service_type=sequential", "--filename_format=f.$jobnum.$filenum",
			"--output-format=json"}, args...)...)
	}
	fail.Must(run("--rw=write", "--create_on_open=1", "--fallocate=none"))
	fio := turns.Side{Pass: func() (turns.Pass, error) {
		text, err := run("--rw=read", "--ioengine=psync", "--invalidate=0", "--allow_file_create=0", "--gtod_reduce=1")
		if err != nil {
			return turns.Pass{}, err
		}
		return fioPass([]byte(text))
	}}
	c := r.cLoop(r.dir, "read", cReadSize, r.threads)
	r.compare(turns.Against("fio / C loop", fio, c), turns.Against("whole, fio's files / C loop", r.fileproc(fileproc.Options{}), c))
}

// fioPass parses fio's report. fio's threads run at the same time, so the slowest one gives the wall time.
func fioPass(text []byte) (p turns.Pass, err error) {
	var report struct {
		Jobs []struct {
			Runtime float64 `json:"job_runtime"` // milliseconds
			User    float64 `json:"usr_cpu"`     // percent
			System  float64 `json:"sys_cpu"`
			Read    struct {
				Runtime float64 // milliseconds
				Bytes   int64   `json:"io_bytes"`
				Files   int     `json:"total_ios"`
			}
		}
	}
	if err := json.Unmarshal(text, &report); err != nil || len(report.Jobs) == 0 {
		return p, fmt.Errorf("fio said %.200q (%v)", text, err)
	}
	for _, job := range report.Jobs {
		p.Wall = max(p.Wall, job.Read.Runtime*1e6)
		p.CPU += job.Runtime * 1e6 * (job.User + job.System) / 100
		p.Bytes += job.Read.Bytes
		p.Files += job.Read.Files
	}
	return p, nil
}
