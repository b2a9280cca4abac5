// Package sum has the subcommands that sum up files: hash, du and stats.
package sum

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

var algorithms = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384,
	"sha512": sha512.New,
}

// hashPrefix is how many bytes of a file are read at first. Up to 64 files wait with that much
// for a worker: with 256 KiB, 100 files of 1 GiB take 30 MiB at the peak, and not 16, in the same time.
const hashPrefix = 32 << 10

// A sums is one run of the subcommand hash: its flags, and the values derived from them.
type sums struct {
	*run.Run
	algorithm                                                      string
	null, json, checks, quiet, status, warn, strict, ignoreMissing bool

	newHash func() hash.Hash
}

// Hash returns the subcommand hash.
func Hash(r *run.Run) *cobra.Command {
	s := sums{Run: r}
	names := slices.Sorted(maps.Keys(algorithms))
	cmd := &cobra.Command{
		Use:   "hash [flags] [DIR|FILE]...",
		Short: "Print or check SHA-256 checksums, as sha256sum does",
		Long: `Print the checksum of every regular file below the directories, including hidden and ignored files, in the format of
sha256sum: names with a newline, a carriage return or a backslash are escaped. With --check, read such lines from the
arguments, in every form that sha256sum accepts, and report which of the listed files have changed. "-" is standard input,
which is also read without an argument if it is a pipe or a file, and always with --check. --check --cache opens only what
has changed below the working directory.`,
		Example: "  fileproc hash src > SUMS\n  fileproc hash --check --quiet SUMS",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"quiet", "status", "warn", "strict", "ignore-missing"} {
				if cmd.Flags().Changed(name) && !s.checks {
					return fmt.Errorf("--%s needs --check", name)
				}
			}
			s.newHash, r.Opts.ReadSize = algorithms[s.algorithm], hashPrefix
			if s.checks {
				s.check(args)
				return nil
			}
			return r.Each(run.Job{Args: r.OrStdin(args), Stdin: true, Read: s.read, Print: s.print, Version: "hash " + s.algorithm})
		},
	}
	f := cmd.Flags()
	run.Choice(cmd, f, &s.algorithm, "algorithm", "a", "sha256", names, "`NAME`: "+strings.Join(names, ", "))
	f.BoolVarP(&s.null, "zero", "z", false, "end each line with a NUL byte, and do not escape names")
	f.BoolVar(&s.json, "json", false, "print one JSON object per line: path, algorithm, hash")
	f.BoolVarP(&s.checks, "check", "c", false, "read checksums from the files, and check them")
	f.BoolVar(&s.quiet, "quiet", false, "with --check: do not print OK for each file")
	f.BoolVar(&s.status, "status", false, "with --check: print no results; only the exit code reports them")
	f.BoolVarP(&s.warn, "warn", "w", false, "with --check: report each malformed line")
	f.BoolVar(&s.strict, "strict", false, "with --check: fail if a line is malformed")
	f.BoolVar(&s.ignoreMissing, "ignore-missing", false, "with --check: do not report or fail for missing files")
	r.Flags(cmd, run.All|run.Reads|run.Sorts|run.Keeps, "json check", "json zero", "zero check", "check files-from")
	return cmd
}

// read returns the checksum of a file in hexadecimal.
func (s *sums) read(it *run.Item) ([]byte, error) {
	h := s.newHash()
	if !it.More {
		h.Write(it.Data)
	} else if _, err := io.Copy(h, it.Reader()); err != nil {
		return nil, err
	}
	return hex.AppendEncode(nil, h.Sum(nil)), nil
}

func (s *sums) print(path string, sum []byte, c *output.Chunk) error {
	s.Found.Store(true)
	if s.json {
		c.B = fmt.Appendf(c.B, `{"path":%s,"algorithm":"%s","hash":"%s"}`+"\n", output.Path(path), s.algorithm, sum)
		return nil
	}
	name, end := path, byte(0)
	if !s.null {
		if name, end = escaper.Replace(path), '\n'; len(name) > len(path) {
			c.B = append(c.B, '\\')
		}
		name = s.Out.Shown(name)
	}
	c.B = append(append(append(append(c.B, sum...), "  "...), name...), end)
	return nil
}

// escaper and unescaper convert names as sha256sum does. unescaper turns an invalid escape into a NUL byte, which no name
// has.
var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r", `\`, "\x00")
)
