//go:build linux

package floor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const fioFileSize = 400 // bytes

// runFio checks the C loop against fio, an independent program: fio creates as many files, then opens, reads and closes them,
// and the C loop and fileproc read the same files. fio does additional work for each file, so it is not a floor.
func runFio(dir string, threads, pairs, passes int, p printer) error {
	fio, err := exec.LookPath("fio")
	if err != nil {
		return p.leftOut("fio is not installed")
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	own, err := os.MkdirTemp(filepath.Dir(dir), "fio-") // on the same file system
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	perJob := len(list) / threads
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command(fio, append([]string{"--name=floor", "--directory=" + own, "--thread", fmt.Sprint("--numjobs=", threads),
			fmt.Sprint("--nrfiles=", perJob), fmt.Sprint("--filesize=", fioFileSize), fmt.Sprint("--bs=", fioFileSize), "--openfiles=1",
			"--file_service_type=sequential", "--filename_format=f.$jobnum.$filenum", "--output-format=json"}, args...)...)
		cmd.Dir = own
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("fio: %w: %s", err, exit.Stderr)
		}
		return out, err
	}
	if _, err := run("--rw=write", "--create_on_open=1", "--fallocate=none"); err != nil {
		return err
	}
	theirs := func() (pass, error) {
		text, err := run("--rw=read", "--ioengine=psync", "--invalidate=0", "--allow_file_create=0", "--gtod_reduce=1")
		if err != nil {
			return pass{}, err
		}
		return fioPass(text)
	}
	c, err := startCLoop(own, threads)
	if err != nil {
		return err
	}
	defer c.close()
	return p.compare(pairs, passes, comparison{"fio / C loop", theirs, c.side("read", cReadSize)},
		comparison{"whole, fio's files / C loop", comparisons("whole", own, c)[0].ours, c.side("read", cReadSize)})
}

// fioPass parses fio's report. fio's threads run at the same time, so the slowest one gives the wall time.
func fioPass(text []byte) (p pass, err error) {
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
		p.wall = max(p.wall, job.Read.Runtime*1e6)
		p.cpu += job.Runtime * 1e6 * (job.User + job.System) / 100
		p.bytes += job.Read.Bytes
		p.files += job.Read.Files
	}
	return p, nil
}
