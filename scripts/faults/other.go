//go:build !(linux && (amd64 || arm64 || loong64 || riscv64))

// Command faults needs Linux on a machine of 64 bits, whose strace injects errors into system calls.
package main

import "fmt"

func main() { fmt.Println("skipped: faults needs Linux on a machine of 64 bits") }
