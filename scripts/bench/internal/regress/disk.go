//go:build linux

package regress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// diskRequests are those of a cold run to the disk that the command disk emulates.
const diskRequests = "disk requests"

// aDiskFile allows for what differs between two images of the same files, and between two runs over one: 0.026 to 0.039 on a
// busy machine. In the order of the listing it is more than 1.
var aDiskFile = allowance{part: 1, extra: 0.01, unit: "a file"}

// A diskCounter counts the requests of the working tree.
type diskCounter struct {
	repo repository
	dir  string // of the commands disk and bench, and of images
}

func (repo repository) newDiskCounter(ctx context.Context, dir string) (diskCounter, error) {
	d := diskCounter{repo, dir}
	if os.Getuid() != 0 {
		return d, errors.New("only root can mount a disk")
	}
	for _, name := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(name); err != nil {
			return d, err
		}
	}
	_, err := output(ctx, filepath.Join(string(repo), "scripts"), "go", "build", "-buildvcs=false", "-o", dir+"/", "./disk", "./bench")
	return d, err
}

// requests returns the requests a file of a cold run over the case's set. The least of some runs counts.
func (d diskCounter) requests(ctx context.Context, bc benchCase) (float64, error) {
	image := filepath.Join(d.dir, bc.set.Name()+".img")
	if _, err := os.Stat(image); err != nil {
		from := filepath.Join(string(d.repo), ".data", bc.set.Name())
		if _, err := output(ctx, "", d.command("disk"), "image", "-fs", "ext4", "-from", from, "-o", image); err != nil {
			return 0, err
		}
	}
	const runs = 3
	least := 0
	for range runs {
		text, err := output(ctx, "", d.command("disk"), "run", "-image", image, "--", d.command("bench"), "floor", "-case", "once", "-dir", "{}")
		if err != nil {
			return 0, err
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		var count struct{ Requests int }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &count); err != nil {
			return 0, fmt.Errorf("%v: the command disk printed %q: %w", bc, text, err)
		}
		if least == 0 || count.Requests < least {
			least = count.Requests
		}
	}
	return float64(least) / float64(bc.set.Count), nil
}

func (d diskCounter) command(name string) string { return filepath.Join(d.dir, name) }

// countRequests adds the requests of the cases to their counts, or says why it cannot.
func (repo repository) countRequests(ctx context.Context, dir string, cases []benchCase, all map[string]counts) {
	d, err := repo.newDiskCounter(ctx, dir)
	if err != nil {
		fmt.Printf("requests to a disk are not counted: %v\n", err)
		return
	}
	for _, bc := range cases {
		if bc.mode != "whole" || all[bc.String()] == nil {
			continue
		}
		n, err := d.requests(ctx, bc)
		if err != nil {
			fmt.Printf("requests to a disk are not counted: %v\n", err)
			return
		}
		all[bc.String()][diskRequests] = n
	}
}
