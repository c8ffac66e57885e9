# Completion of kp(8) for bash.
# Written from the command line's own tables: UPDATE=1 cargo test -p kp completions
_kp() {
    local cur=${COMP_WORDS[COMP_CWORD]} said= files= i
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    -p) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    -c | -e) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    -s) mapfile -t COMPREPLY < <(compgen -W 'stop quit reopen reload upgrade' -- "$cur"); return ;;
    -p|-e|-c|-g|-s|--limit|--longer) return ;;
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -p|-e|-c|-g|-s|--limit|--longer) i=$((i + 1)) ;;
        -*) ;;
        *) said=${said:+$said }${COMP_WORDS[i]} ;;
        esac
    done
    local words=
    case $said in
    '') words='status ctl explain convert schema demo-upstream -? -h -v -V -t -T -q -s -p -e -c -g' ;;
    'ctl') words='upstream peer reset batch requests connections log-level --json' ;;
    'ctl upstream') words='list show' ;;
    'ctl peer') words='add remove drain down up weight max_conns reset' ;;
    'ctl peer add') words='--force' ;;
    'ctl peer remove') words='--force' ;;
    'ctl peer drain') words='--force' ;;
    'ctl peer down') words='--force' ;;
    'ctl peer up') words='--force' ;;
    'ctl peer weight') words='--force' ;;
    'ctl peer max_conns') words='--force' ;;
    'ctl peer reset') words='--force' ;;
    'ctl reset') words='--force' ;;
    'ctl batch') words='--force' files=1 ;;
    'ctl requests') words='--limit --longer' ;;
    'ctl connections') words='--limit' ;;
    'ctl log-level') words='debug info notice warn error crit alert emerg reset' ;;
    'convert') words='' files=1 ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    if [[ $files ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -F _kp kp
