# Completion of kp(8) for fish.
# Written from the command line's own tables: UPDATE=1 cargo test -p kp completions
function __kp_said
    set -l skip 0
    set -l said
    for word in (commandline -opc)[2..]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case -p -e -c -g -s --limit --longer
                set skip 1
            case '-*'
            case '*'
                set -a said $word
        end
    end
    test "$said" = "$argv"
end

complete -c kp -f
complete -c kp -s '?' -d 'this help'
complete -c kp -s 'h' -d 'this help'
complete -c kp -s 'v' -d 'the version'
complete -c kp -s 'V' -d 'the version, the built-in defaults and what is left out'
complete -c kp -s 't' -d 'check the configuration: every error, each with its place'
complete -c kp -s 'T' -d 'check the configuration and print it'
complete -c kp -s 'q' -d 'with -t: say nothing unless something is wrong'
complete -c kp -s 's' -x -a 'stop quit reopen reload upgrade' -d 'tell the running master: stop, quit, reopen, reload, upgrade'
complete -c kp -s 'p' -x -a '(__fish_complete_directories)' -d 'what relative paths are relative to (default: /etc/kp)'
complete -c kp -s 'e' -r -F -d 'error log until the configuration names one (default: /var/log/kp/error.log)'
complete -c kp -s 'c' -r -F -d 'configuration (default: /etc/kp/kp.yaml, then /etc/kp/kp.conf)'
complete -c kp -s 'g' -x -d 'main directives in front of the configuration'
complete -c kp -n '__kp_said ' -a 'status' -d 'shows what the running master does'
complete -c kp -n '__kp_said ' -a 'ctl' -d 'looks into the running master and steers it'
complete -c kp -n '__kp_said ' -a 'explain' -d 'tells what a directive or a variable is'
complete -c kp -n '__kp_said ' -a 'convert' -d 'prints a configuration in nginx\'s syntax as YAML'
complete -c kp -n '__kp_said ' -a 'schema' -d 'prints a JSON Schema of the YAML form'
complete -c kp -n '__kp_said ' -a 'demo-upstream' -d 'answers every request on 127.0.0.1:PORT with NAME and the request\'s head'
complete -c kp -n '__kp_said ctl' -a 'upstream'
complete -c kp -n '__kp_said ctl' -a 'peer'
complete -c kp -n '__kp_said ctl' -a 'reset' -d 'give up run-time changes: the configuration holds again'
complete -c kp -n '__kp_said ctl' -a 'batch' -d 'make many changes in one step or none: a line each, `peer ...` or `reset ...`'
complete -c kp -n '__kp_said ctl' -a 'requests' -d 'requests in flight, the oldest first: where each of them waits, and what will end it'
complete -c kp -n '__kp_said ctl' -a 'connections' -d 'connections of clients, the oldest first, and those to each peer'
complete -c kp -n '__kp_said ctl' -a 'log-level' -d 'show or change the level of every error log, until reset or a restart'
complete -c kp -n '__kp_said ctl' -l json -d 'the master\'s answer as it is'
complete -c kp -n '__kp_said ctl upstream' -a 'list' -d 'every upstream with its peers: state, weight, what is in flight, what failed last'
complete -c kp -n '__kp_said ctl upstream' -a 'show' -d 'all that is known of one upstream, with the run-time changes in force'
complete -c kp -n '__kp_said ctl peer' -a 'add' -d 'add a peer, with the parameters of a server line'
complete -c kp -n '__kp_said ctl peer' -a 'remove' -d 'take a peer out for good'
complete -c kp -n '__kp_said ctl peer' -a 'drain' -d 'send only those sessions to a peer that it has'
complete -c kp -n '__kp_said ctl peer' -a 'down' -d 'send nothing to a peer'
complete -c kp -n '__kp_said ctl peer' -a 'up' -d 'neither drain nor down'
complete -c kp -n '__kp_said ctl peer' -a 'weight' -d 'give a peer another weight'
complete -c kp -n '__kp_said ctl peer' -a 'max_conns' -d 'give a peer another limit of connections, 0 is none'
complete -c kp -n '__kp_said ctl peer' -a 'reset' -d 'forget a peer\'s failures and its ejection'
complete -c kp -n '__kp_said ctl peer add' -l force
complete -c kp -n '__kp_said ctl peer remove' -l force
complete -c kp -n '__kp_said ctl peer drain' -l force
complete -c kp -n '__kp_said ctl peer down' -l force
complete -c kp -n '__kp_said ctl peer up' -l force
complete -c kp -n '__kp_said ctl peer weight' -l force
complete -c kp -n '__kp_said ctl peer max_conns' -l force
complete -c kp -n '__kp_said ctl peer reset' -l force
complete -c kp -n '__kp_said ctl reset' -l force
complete -c kp -n '__kp_said ctl batch' -l force
complete -c kp -n '__kp_said ctl batch' -F
complete -c kp -n '__kp_said ctl requests' -x -l limit
complete -c kp -n '__kp_said ctl requests' -x -l longer
complete -c kp -n '__kp_said ctl connections' -x -l limit
complete -c kp -n '__kp_said ctl log-level' -a 'debug'
complete -c kp -n '__kp_said ctl log-level' -a 'info'
complete -c kp -n '__kp_said ctl log-level' -a 'notice'
complete -c kp -n '__kp_said ctl log-level' -a 'warn'
complete -c kp -n '__kp_said ctl log-level' -a 'error'
complete -c kp -n '__kp_said ctl log-level' -a 'crit'
complete -c kp -n '__kp_said ctl log-level' -a 'alert'
complete -c kp -n '__kp_said ctl log-level' -a 'emerg'
complete -c kp -n '__kp_said ctl log-level' -a 'reset'
complete -c kp -n '__kp_said convert' -F
