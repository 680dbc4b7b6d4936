package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Certificate is the certificate of a server on 127.0.0.1, made for one test.
type Certificate struct {
	// CertFile and KeyFile are in PEM. Clients trust CertFile.
	CertFile, KeyFile string
}

// NewCertificate makes one.
func NewCertificate(t testing.TB) Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	dir := t.TempDir()
	c := Certificate{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	for file, block := range map[string]*pem.Block{
		c.CertFile: {Type: "CERTIFICATE", Bytes: cert},
		c.KeyFile:  {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatalf("redistest: certificate: %v", err)
		}
	}
	return c
}

// Trust returns what a client needs that connects to a server with the certificate in a file.
func Trust(certFile string) (*tls.Config, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// Args returns the arguments of a server that shows the certificate, at an address of its own
// besides the one without TLS: see [Server.TLSAddr].
func (c Certificate) Args() []string {
	return []string{
		"--tls-auth-clients", "no",
		certArg, c.CertFile, "--tls-key-file", c.KeyFile, "--tls-ca-cert-file", c.CertFile,
	}
}

const certArg = "--tls-cert-file"

// secure reports whether [Certificate.Args] are among the arguments.
func secure(args []string) bool { return slices.Contains(args, certArg) }

// Secure is a redis-server that its clients reach by TLS.
type Secure struct {
	*Server // its own address takes no TLS
	// TLSAddr is that of the server.
	TLSAddr string
	// Config makes a client trust the server, and CertFile does so in another process.
	Config   *tls.Config
	CertFile string
}

// TLS starts a server like [Single] with an address for TLS besides.
func TLS(t testing.TB, args ...string) Secure {
	t.Helper()
	cert := NewCertificate(t)
	config, err := Trust(cert.CertFile)
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	s := Single(t, append(cert.Args(), args...)...)
	return Secure{s, s.TLSAddr(), config, cert.CertFile}
}
