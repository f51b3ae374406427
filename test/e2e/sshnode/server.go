// Package sshnode is an SSH server for a node that has neither sshd nor systemd: by such
// commands, Kubernetes' storage tests look at a node's mounts, and stop and start its
// kubelet. It serves one client, whose key it creates, and is for tests only.
package sshnode

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// Server runs the commands of its client, as root.
type Server struct {
	listener net.Listener
	config   *ssh.ServerConfig
	service  *service
	stop     context.CancelFunc
	serving  sync.WaitGroup
}

// Start serves on address and writes the client's private key to keyPath. The command
// `systemctl VERB PROGRAM` acts on the running program, which must be the only one of
// its name.
func Start(ctx context.Context, address, keyPath, program string) (*Server, error) {
	running, err := findService(program)
	if err != nil {
		return nil, err
	}
	client, err := writeKey(keyPath)
	if err != nil {
		return nil, fmt.Errorf("create the client's key: %w", err)
	}
	_, hostKey, err := newKey()
	if err != nil {
		return nil, err
	}
	host, err := ssh.NewSignerFromKey(hostKey)
	if err != nil {
		return nil, err
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(key.Marshal(), client.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Server{listener: listener, config: config, service: running, stop: stop}
	s.serving.Go(func() { s.accept(ctx) })
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends all commands, and starts the program again if the last command stopped it.
func (s *Server) Close() error {
	s.stop()
	err := s.listener.Close()
	s.serving.Wait()
	return errors.Join(err, s.service.start())
}

func newKey() (ssh.PublicKey, ed25519.PrivateKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	key, err := ssh.NewPublicKey(public)
	return key, private, err
}

func writeKey(path string) (ssh.PublicKey, error) {
	public, private, err := newKey()
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	return public, os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

func (s *Server) accept(ctx context.Context) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.serving.Go(func() { s.serve(ctx, conn) })
	}
}

// serve handles one connection, until the client or the server ends it.
func (s *Server) serve(ctx context.Context, tcp net.Conn) {
	defer tcp.Close()
	end := context.AfterFunc(ctx, func() { tcp.Close() })
	defer end()
	_, channels, requests, err := ssh.NewServerConn(tcp, s.config)
	if err != nil {
		return // the client sees its own error
	}
	s.serving.Go(func() { ssh.DiscardRequests(requests) })
	for offered := range channels {
		if offered.ChannelType() != "session" {
			_ = offered.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		s.serving.Go(func() { s.session(ctx, channel, requests) })
	}
}

// session runs the one command of a session (RFC 4254, section 6.5).
func (s *Server) session(ctx context.Context, channel ssh.Channel, requests <-chan *ssh.Request) {
	defer func() { _ = channel.Close() }()
	for request := range requests {
		var command struct{ Line string }
		if request.Type != "exec" || ssh.Unmarshal(request.Payload, &command) != nil {
			_ = request.Reply(false, nil)
			continue
		}
		_ = request.Reply(true, nil)
		status := struct{ Code uint32 }{uint32(s.run(ctx, command.Line, channel))}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
		return
	}
}

// run returns the exit code of the command.
func (s *Server) run(ctx context.Context, line string, channel ssh.Channel) int {
	if words := strings.Fields(strings.TrimPrefix(line, "sudo ")); len(words) >= 3 && words[0] == "systemctl" {
		return s.systemctl(words[1], words[2], channel)
	}
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Stdout, command.Stderr = channel, channel.Stderr()
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	default:
		fmt.Fprintln(channel.Stderr(), err)
		return 255
	}
}

// systemctl answers as systemctl(1) does for a unit with the program's name.
func (s *Server) systemctl(verb, unit string, channel ssh.Channel) int {
	err := fmt.Errorf("unit %s: want %s", unit, s.service.program)
	if unit == s.service.program {
		switch verb {
		case "start":
			err = s.service.start()
		case "stop":
			err = s.service.stop()
		case "show": // --property ActiveState --value
			state := "inactive"
			if s.service.active() {
				state = "active"
			}
			_, err = fmt.Fprintln(channel, state)
		default:
			err = fmt.Errorf("verb %s: want start, stop or show", verb)
		}
	}
	if err != nil {
		fmt.Fprintln(channel.Stderr(), err)
		return 1
	}
	return 0
}
