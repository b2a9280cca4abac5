package main

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

var algorithms = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384,
	"sha512": sha512.New,
}

// hashPrefix is how many bytes of a file are read at once, and the size of the reads of a longer one.
const hashPrefix = 256 << 10

func (a *app) hashCommand() *cobra.Command {
	var algorithm string
	var null, asJSON, check bool
	var c checker
	cmd := &cobra.Command{
		Use:   "hash [flags] [DIR|FILE]...",
		Short: "Print or check SHA-256 checksums, as sha256sum does",
		Long: `Print the checksum of every regular file below the directories, including hidden and ignored files, in the format of
sha256sum: names with a newline, a carriage return or a backslash are escaped. With --check, read such lines from the
arguments, in every form that sha256sum accepts, and report which of the listed files have changed. "-" is standard input,
which is also read without an argument if it is a pipe or a file, and always with --check. --check --cache opens only what
has changed below the working directory.`,
		Example: "  fileproc hash src > SUMS\n  fileproc hash --check --quiet SUMS",
		RunE: func(_ *cobra.Command, args []string) error {
			newHash := algorithms[algorithm]
			if newHash == nil {
				return fmt.Errorf("--algorithm is %q: want one of %s", algorithm, algorithmNames())
			}
			if check && a.sel.list.file != "" {
				return errors.New("--check reads its own lists, so --files-from cannot be used with it")
			}
			if check {
				c.app, c.newHash, c.tag = a, newHash, strings.ToUpper(algorithm)
				return c.check(args)
			}
			return a.hash(a.orStdin(args), algorithm, null, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&algorithm, "algorithm", "a", "sha256", "`NAME`: "+algorithmNames())
	f.BoolVarP(&null, "zero", "z", false, "end each line with a NUL byte, and do not escape names")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per line: path, algorithm, hash")
	f.BoolVarP(&check, "check", "c", false, "read checksums from the files, and check them")
	f.BoolVar(&c.quiet, "quiet", false, "with --check: do not print OK for each file")
	f.BoolVar(&c.status, "status", false, "with --check: print no results; only the exit code reports them")
	f.BoolVarP(&c.warn, "warn", "w", false, "with --check: report each malformed line")
	f.BoolVar(&c.strict, "strict", false, "with --check: fail if a line is malformed")
	f.BoolVar(&c.ignoreMissing, "ignore-missing", false, "with --check: do not report or fail for missing files")
	cmd.MarkFlagsMutuallyExclusive("json", "check")
	cmd.MarkFlagsMutuallyExclusive("json", "zero")
	cmd.MarkFlagsMutuallyExclusive("zero", "check")
	cmd.RegisterFlagCompletionFunc("algorithm", cobra.FixedCompletions(
		slices.Sorted(maps.Keys(algorithms)), cobra.ShellCompDirectiveNoFileComp))
	a.sel.flags(cmd, true, true)
	a.sel.sortFlag(cmd)
	a.sel.cacheFlag(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range []string{"quiet", "status", "warn", "strict", "ignore-missing"} {
			if cmd.Flags().Changed(name) && !check {
				return fmt.Errorf("--%s needs --check", name)
			}
		}
		return nil
	}
	return cmd
}

func algorithmNames() string { return strings.Join(slices.Sorted(maps.Keys(algorithms)), ", ") }

// A hasher computes the checksums of one worker.
type hasher struct {
	h   hash.Hash
	buf []byte // for files that are read in parts
	sum []byte
	_   [64]byte // keeps two workers' hashers on different cache lines
}

// checksum returns the checksum of a file in hexadecimal. It is valid until the next call.
func (h *hasher) checksum(it *item, newHash func() hash.Hash) ([]byte, error) {
	if h.h == nil {
		h.h = newHash()
	}
	h.h.Reset()
	if it.more {
		// The file is read from the beginning again, so that all hashed bytes come from one handle.
		r, err := it.open()
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if h.buf == nil {
			h.buf = make([]byte, hashPrefix)
		}
		if _, err := io.CopyBuffer(h.h, r, h.buf); err != nil {
			return nil, err
		}
	} else {
		h.h.Write(it.data)
	}
	size := h.h.Size()
	h.sum = h.h.Sum(h.sum[:0])
	h.sum = hex.AppendEncode(h.sum, h.sum)
	return h.sum[size:], nil
}

func (a *app) hash(args []string, algorithm string, null, asJSON bool) error {
	opts := a.sel.opts
	opts.ReadSize = hashPrefix
	hashers := make([]hasher, opts.Workers)
	read := func(it *item) ([]byte, error) { return hashers[it.worker].checksum(it, algorithms[algorithm]) }
	print := func(path string, sum []byte, c *chunk) error {
		a.found.Store(true)
		switch {
		case asJSON:
			return c.json(struct {
				Path      any    `json:"path"`
				Algorithm string `json:"algorithm"`
				Hash      string `json:"hash"`
			}{jsonPath(path), algorithm, string(sum)})
		case null:
			c.b = append(append(append(append(c.b, sum...), "  "...), path...), 0)
			return nil
		}
		name := escaper.Replace(path)
		if len(name) > len(path) {
			c.b = append(c.b, '\\')
		}
		c.b = append(append(append(append(c.b, sum...), "  "...), a.out.shown(name)...), '\n')
		return nil
	}
	return a.each(job{args: args, opts: opts, stdin: true, read: read, print: print, version: "hash " + algorithm})
}

// escaper and unescaper convert names as sha256sum does. unescaper turns an invalid escape into a NUL byte, which no name
// has.
var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r", `\`, "\x00")
)
