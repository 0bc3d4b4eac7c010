# A client of the protocol, and its driver for the conformance suite, with core modules only.
use strict;
use warnings;
use IO::Socket::INET;
use JSON::PP;
use Time::HiRes qw(time);

$| = 1;
# Perl has one kind of number, so a number stays the text that it was. [PAY-5] [PAY-25] [PAY-26]
package Number { our @ISA = "Math::BigFloat"; use overload '""' => sub { ${ $_[0] } } }

sub number {    # [PAY-4]
    my ($text) = @_;
    return abs($text) == 9**9**9 ? die "no finite number\n" : bless \$text, "Number";
}

my $mark = unpack("H*", random_bytes(12));
my $json = JSON::PP->new->utf8->canonical->allow_bignum->max_depth(2000);
my $written = JSON::PP->new->utf8->canonical->allow_bignum->max_depth(100);    # [PAY-3]
$json->filter_json_single_key_object($mark => \&number);

sub decoded {
    my ($text) = @_;
    return $json->decode($text =~ s/("(?:[^"\\]|\\.)*+")|(-?\d[\d.eE+-]*)/$1 \/\/ qq({"$mark":"$2"})/ger);
}

my ($login, $host, $port) = $ENV{JOBWIRE_REDIS_URL} =~ m{^redis://(?:([^@]*)@)?([^:/]+):(\d+)}
  or die "JOBWIRE_REDIS_URL is not redis://HOST:PORT";
my $redis = IO::Socket::INET->new(PeerHost => $host, PeerPort => $port) or die "$host:$port: $!";

sub call {    # every reply of these commands is a line, or an array of lines
    print $redis "*", scalar @_, "\r\n", map { "\$" . length($_) . "\r\n$_\r\n" } @_;
    my $reply = <$redis> // die "connection closed\n";
    die "redis: $reply" if $reply =~ /^-/;
    if ($reply =~ /^\*(\d+)/) { read_lines($1) }
}

# User and password are percent-encoded, and + stands for itself. [ENV-7]
call("AUTH", map { s/%(..)/chr hex $1/ger } split /:/, $login, 2) if length($login // "");

sub random_bytes {
    open(my $random, "<:raw", "/dev/urandom") or die $!;
    read($random, my $bytes, $_[0]);
    return $bytes;
}

sub read_lines { for (1 .. $_[0]) { <$redis> // die "connection closed\n" } }

sub now { $ENV{JOBWIRE_GENERATION} == 8 ? int(time * 1000) : sprintf("%.6f", time) + 0 }

sub payload {    # JSON::PP escapes U+007F. [PAY-21]
    my $text = eval { $written->encode($_[0]) } // die "rejected: $@";
    return $text =~ s/(\\\\)|\\u007f/$1 \/\/ "\x7f"/ger;
}

sub push_job {
    my ($job, $at) = @_;
    my %job = (retry => JSON::PP::true, queue => "default", %$job);
    die "rejected: class\n" if ref $job{class} || !length($job{class} // "");
    die "rejected: args\n" if ref $job{args} ne "ARRAY";
    die "rejected: queue\n" if ref $job{queue} || !length($job{queue} // "");
    die "rejected: at\n" if defined $at && (ref $at || $at !~ /^\d+(\.\d+)?$/ || $at >= 1e11);
    $job{jid} = unpack("H*", random_bytes(12)) if !length($job{jid} // "");    # [PUSH-20] [PUSH-21]
    $job{created_at} //= now();
    $job{retry_for} = int("$job{retry_for}") if defined $job{retry_for};    # [PAY-0]
    my $name = $job{queue};
    utf8::encode($name);
    if (defined $at) {
        call("ZADD", "schedule", $at, payload(\%job));
    } else {
        $job{enqueued_at} = now();
        my $text = payload(\%job);
        call("MULTI");
        call("SADD", "queues", $name);
        call("LPUSH", "queue:$name", $text);
        call("EXEC");
    }
    return { jid => $job{jid} };
}

while (my $line = <STDIN>) {
    # Half a surrogate pair, for example, is no text. [PAY-22]
    my $request = eval { decoded($line) } // { id => $line =~ /(\d+)/ && 0 + $1, op => "wrong: $@" };
    my ($op, $at) = @$request{"op", "at"};
    $at = 0 + "$at" if ref($at) eq "Number";
    if (defined($request->{in})) {
        my $in = 0 + "$request->{in}";
        $at = $in < 1e9 ? time + $in : $in;
        $at = undef if $at <= time;
    }
    my $answer =
        $op eq "hello"  ? { ok => { driver => 1, version => "1", ops => ["push"] } }
      : $op eq "push"   ? eval { { ok => push_job($request->{job}, $at) } }
      : $op eq "bye"    ? { ok => {} }
      : $op =~ /^wrong/ ? { error => { kind => "rejected", message => $op } }
      :                   { unsupported => JSON::PP::true };
    $answer //= { error => { kind => $@ =~ /^rejected/ ? "rejected" : "unknown", message => "$@" } };
    print $json->encode({ id => $request->{id}, %$answer }), "\n";
    last if $op eq "bye";
}
