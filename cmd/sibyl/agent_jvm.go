package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/agents/jvm"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func jvmAgentCommand(p *process) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "jvm --write FILE",
		Short: "Write the agent for Java programs, or load it into a running one",
		Long: `Jvm writes the JVM agent, a single jar, to a file. Depending on its arguments, the agent turns methods of
an application into tracepoints that Sibyl enables and disables at run time, or profiles a program without Sibyl.
docs/jvm.md describes both.`,
		Example: `  sibyl agent jvm --write sibyl-agent.jar
  java -javaagent:sibyl-agent.jar='p:com\.shop\..*' -jar shop.jar          # a profile
  java -javaagent:sibyl-agent.jar=endpoint:http://127.0.0.1:8321#service:shop -jar shop.jar`,
		Args: cli.OnlyCommands,
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return cli.Usagef("give --write FILE, or a command: attach, classify")
			}
			return writeJar(file)
		},
	}
	c.Flags().StringVar(&file, "write", "", "file to write the jar to")
	c.AddCommand(attachCommand(p), classifyCommand(p))
	return c
}

// writeJar writes the agent to file. It replaces the file atomically, because JVMs may have the previous one open.
func writeJar(file string) error {
	if err := renameio.WriteFile(file, jvm.Jar(), 0o644); err != nil {
		return fmt.Errorf("write the agent: %w", err)
	}
	return nil
}

func attachCommand(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "attach PID ARGUMENTS",
		Short: "Load the agent into a running JVM",
		Long: `Attach loads the agent into the running JVM with the process ID PID. Run it as root or as the user of
that process. The JVM may run in a container, and no JDK is needed. The jar stays in /tmp as seen by the JVM, which
keeps it open. Messages and reports go to the JVM's standard error; with output:FILE, reports go to FILE in the JVM's
file system instead.`,
		Example: `  sibyl agent jvm attach 4711 'p:com\.shop\..*#duration:30#output:/tmp/profile.txt'
  sibyl agent jvm attach 4711 'endpoint:http://127.0.0.1:8321#service:shop'`,
		Args: cli.Arguments(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid <= 0 || pid == os.Getpid() {
				return cli.Usagef("%q is not the ID of a process of Java", args[0])
			}
			if strings.ContainsRune(args[1], 0) {
				return cli.Usagef("the arguments contain a zero byte")
			}
			if err := jvm.Attach(c.Context(), pid, args[1]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.out, "The agent runs in process %d.\n", pid)
			return err
		},
	}
}
